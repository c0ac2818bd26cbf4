"""The image that every component runs in; chosen when a graph is compiled."""

import os

IMAGE = os.environ.get("POSTTRAIN_IMAGE", "localhost/posttrain:dev")
