def run_controls(runs):
    return []
