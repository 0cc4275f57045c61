//! Traces of the queue.
