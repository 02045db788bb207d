//! The one form of a closed list of names with numbers.

/// Defines an enum whose variants have a numeric code and a name, both stable and public.
///
/// Gives `ALL`, `code`, `from_code`, `name`, `Display` (the name) and `FromStr` (by name).
macro_rules! coded_enum {
    (
        $(#[$meta:meta])*
        pub enum $Enum:ident: $what:literal {
            $( $(#[$vmeta:meta])* $Variant:ident = $code:literal => $name:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum $Enum {
            $(
                $(#[$vmeta])*
                // Behind a blank line, so that the first paragraph is the variant's own.
                #[doc = concat!("\n`", $name, "`, code ", stringify!($code), ".")]
                $Variant = $code,
            )*
        }

        impl $Enum {
            /// Every variant, in the order of the codes.
            pub const ALL: &'static [Self] = &[$( Self::$Variant, )*];

            /// The number of this variant in the C ABI.
            #[must_use]
            pub const fn code(self) -> u32 {
                self as u32
            }

            /// The variant of a number; `None` if there is none.
            #[must_use]
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$Variant), )*
                    _ => None,
                }
            }

            /// The name in JSON and in messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$Variant => $name, )*
                }
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $Enum {
            type Err = $crate::types::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $( $name => Ok(Self::$Variant), )*
                    _ => {
                        let names = Self::ALL.iter().map(|one| one.name());
                        Err($crate::types::UnknownName::new($what, name, names))
                    }
                }
            }
        }
    };
}

/// As `coded_enum`, for variants that a macro documents by their names.
macro_rules! documented_enum {
    (
        $document:ident,
        $(#[$meta:meta])*
        pub enum $Enum:ident: $what:literal {
            $( $(#[$vmeta:meta])* $Variant:ident = $code:literal => $name:literal, )*
        }
    ) => {
        $crate::types::codes::coded_enum! {
            $(#[$meta])*
            pub enum $Enum: $what {
                $(
                    $(#[$vmeta])*
                    #[doc = $document!($Variant)]
                    $Variant = $code => $name,
                )*
            }
        }
    };
}

pub(crate) use {coded_enum, documented_enum};
