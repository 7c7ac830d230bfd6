"""Where ranks sit and how fast links are: placements of groups, usable capacity and latency of each
class of link, the fabric as a graph, topologies."""
