"""An example of ReFrame's settings: this machine, and a cluster with Slurm. Change names and ``access``."""

site_configuration = {
    "systems": [
        {
            "name": "example",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "local",
                    "scheduler": "local",
                    "launcher": "local",
                    "environs": ["default"],
                    # Two tests at a time on one GPU would disturb each other.
                    "max_jobs": 1,
                },
                {
                    "name": "gpu",
                    # "slurm" where Slurm keeps accounts (sacct works), else "squeue".
                    "scheduler": "squeue",
                    "launcher": "local",
                    "access": ["--partition=main"],
                    "environs": ["default"],
                    "max_jobs": 8,
                },
            ],
        }
    ],
    "environments": [{"name": "default"}],
}
