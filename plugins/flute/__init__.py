"""fedincentive in Microsoft's FLUTE: mechanisms and robust rules by `strategy:` of its YAML.

    python -m torch.distributed.run --nproc_per_node=3 -m fedincentive.plugins.flute -config mine.yaml -backend gloo ...

In FLUTE's checkout, with the arguments of its e2e_trainer.py. FLUTE is a simulator: every process reads the data of all
users. So agents live beside the center in the first process, and only training goes to FLUTE's workers.
"""
