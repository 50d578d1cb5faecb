"""The provider "aws": clusters of EC2 instances, made by one request each."""
