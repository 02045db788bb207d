//! Spans and events of the crate `tracing`, if the feature of that name is on. Without it they are nothing.

/// Opens a span that ends with the scope; no value is computed without the feature. If the span has a name
/// in the scope, [`record`] gives its last field, which has no value yet, one.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)*) => {
        let _span = tracing::debug_span!(target: "sterna", $name $(, $field = $value)*).entered();
    };
    ($span:ident: $name:literal $(, $field:ident = $value:expr)*; $later:ident) => {
        let $span = tracing::debug_span!(
            target: "sterna", $name $(, $field = $value)*, $later = tracing::field::Empty
        )
        .entered();
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($($anything:tt)*) => {};
}

/// Gives a field of a span its value.
#[cfg(feature = "tracing")]
macro_rules! record {
    ($span:ident, $field:ident = $value:expr) => {
        $span.record(stringify!($field), $value);
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! record {
    ($span:ident, $field:ident = $value:expr) => {
        let _ = $value;
    };
}

/// An event that a user may want to know of: work goes a slower way.
#[cfg(feature = "tracing")]
macro_rules! slower {
    ($($message:tt)*) => {
        tracing::info!(name: "slower", target: "sterna", $($message)*)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! slower {
    ($($message:tt)*) => {
        let _ = format_args!($($message)*);
    };
}

pub(crate) use {record, slower, span};
