//! Spans of the crate `tracing`, if the feature of that name is on.

/// Opens a span that ends with the scope. Without the feature it is nothing, and no value is computed.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)* $(,)?) => {
        let _span = tracing::debug_span!(target: "sterna", $name $(, $field = $value)*).entered();
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($($anything:tt)*) => {};
}

pub(crate) use span;
