//! Graph JSON in and out.
