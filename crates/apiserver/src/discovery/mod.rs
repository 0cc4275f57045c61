//! What is served: aggregated and legacy discovery.
