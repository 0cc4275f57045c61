//! The web page that shows a cluster's decisions, and its endpoints.
