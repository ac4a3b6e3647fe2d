"""A job's rows, shards and letters on a Redis or Valkey server."""
