"""Problems by what they are about; each file lists its kinds as `KINDS`."""
