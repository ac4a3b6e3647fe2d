"""Seeds of a job: lists and queues of URLs that it begins with, or that join it while it runs."""
