"""Model providers' servers as processes of their own (`python -m peers.NAME`, started by `process.PeerProcess`)."""
