"""
From the results of tasks to groups in the log.
"""
