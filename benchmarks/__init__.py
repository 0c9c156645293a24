"""Speed of profkit: recordings of any size (``generate``), and how long reading and analysing them takes (``run``)."""
