"""Copies of jobs, and damaged jobs made whole."""
