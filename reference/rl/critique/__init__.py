"""Self-critique: answers to prompts that no program can verify are ranked by a critic, pair by pair
(Kimi K2, report, section 3.2.2 and appendix F).

Rubrics are data (`rubrics/`); each pair is asked about in both orders; the share of pairs that an
answer wins is its reward. The critic is learned from prompts that can be verified: beforehand by
fine-tuning on comparisons (`python -m reference.rl.critique`), then beside the objective from the
run's own responses (`reference.rl.critique.ranking`).
"""
