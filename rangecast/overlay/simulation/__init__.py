"""The simulator: it owns time, network, disks and failures, all drawn from one seed.

parameters -> world (cabling, hardware, clients, faults, strangers) -> invariants, oracle
"""
