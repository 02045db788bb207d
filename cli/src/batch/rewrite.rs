//! The settings of a batch file that change a graph, as options of `sterna run`.

use sterna::{Attr, AttrType, OpKind, Schema};

use crate::edit;
use crate::words::plain;

/// A setting that makes several graphs of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knob {
    InShapes,
    OpAttrs,
    DataTypes,
    OpKinds,
    Properties,
    MathModes,
    Batches,
}

/// The options that one value of a setting stands for: names and values.
pub(crate) type Alternative = Vec<(&'static str, String)>;

impl Knob {
    pub(crate) const COUNT: usize = 7;

    /// The values that a setting lists. The value of an id is checked with its graph, so one
    /// impossible shape does not end the batch.
    ///
    /// # Errors
    ///
    /// The value that is not in the form of the setting, and how it is written.
    pub(crate) fn alternatives(self, list: &str) -> Result<Vec<Alternative>, String> {
        list.split(',').map(|value| self.alternative(value)).collect()
    }

    fn alternative(self, value: &str) -> Result<Alternative, String> {
        match (self, value) {
            // As in the file.
            (_, "") | (Self::Batches, "0") | (Self::DataTypes | Self::MathModes, "undef") => Ok(Vec::new()),
            (Self::InShapes, _) => each(value, "--shape"),
            (Self::OpAttrs, _) => attributes(value),
            (Self::DataTypes, _) if !value.contains(':') => {
                edit::data_type(value)?;
                Ok(vec![("--type", value.into())])
            }
            (Self::DataTypes, _) => {
                let mut types = each(value, "--type")?;
                types.retain(|(_, edit)| !edit.ends_with("=undef"));
                Ok(types)
            }
            (Self::OpKinds, _) => each(value, "--op-kind"),
            (Self::Properties, _) => each(value, "--property"),
            (Self::MathModes, _) => {
                edit::fpmath(value)?;
                Ok(vec![("--fpmath", value.into())])
            }
            (Self::Batches, _) => match value.parse::<u32>() {
                Ok(_) => Ok(vec![("--mb", value.into())]),
                Err(_) => Err(format!("{:?} is no number of samples", plain(value))),
            },
        }
    }
}

/// The options of entries such as `0:2x3+1:4`.
fn each(value: &str, option: &'static str) -> Result<Alternative, String> {
    let entry = |entry: &str| {
        let (id, value) = id_and_rest(entry)?;
        Ok((option, format!("{id}={value}")))
    };
    entries(value).map(entry).collect()
}

/// The options of entries such as `0:transpose_a:1*transpose_b:0+2:axis:1`.
fn attributes(value: &str) -> Result<Alternative, String> {
    let mut options = Vec::new();
    for entry in entries(value) {
        let (id, attrs) = id_and_rest(entry)?;
        for attr in attrs.split('*') {
            match attr.split_once(':') {
                // benchdnn passes over every colon before the value.
                Some((name, value)) if !name.is_empty() => {
                    let value = value.trim_start_matches(':');
                    let mut set = |name: &str, value: &str| {
                        options.push(("--attr", format!("{id}.{name}={value}")));
                    };
                    match is_of_whole_numbers(name) && has_fractions(value) {
                        // Batch files give factors so, and benchdnn takes what sizes say from the shapes.
                        true if name == Attr::Sizes.name() => {
                            set(name, "undef");
                            set(Attr::Scales.name(), value);
                        }
                        true => set(name, &whole(value)),
                        false => set(name, value),
                    }
                }
                _ => return Err(format!("{:?} is not ATTRIBUTE:VALUE", plain(attr))),
            }
        }
    }
    Ok(options)
}

/// True if attributes of this name hold lists of whole numbers, whatever the op is.
fn is_of_whole_numbers(name: &str) -> bool {
    let rows = OpKind::ALL.iter().flat_map(|&kind| Schema::of(kind).attributes);
    rows.filter(|row| row.attr.name() == name).all(|row| row.value_type == AttrType::S64s)
}

/// The numbers of a list; `None` if one is none.
fn numbers(value: &str) -> Option<Vec<f64>> {
    value.split('x').map(|number| number.parse::<f64>().ok().filter(|x| x.is_finite())).collect()
}

fn has_fractions(value: &str) -> bool {
    value.contains('.') && numbers(value).is_some()
}

/// A list of numbers without their fractions, as benchdnn takes those of whole numbers.
fn whole(value: &str) -> String {
    let whole = |number: &f64| format!("{:.0}", number.trunc());
    numbers(value).unwrap_or_default().iter().map(whole).collect::<Vec<_>>().join("x")
}

/// The texts between plus signs, without empty ones, as benchdnn takes it.
fn entries(value: &str) -> impl Iterator<Item = &str> {
    value.split('+').filter(|entry| !entry.is_empty())
}

/// An id, and what stands behind its colon. benchdnn reads an id up to the last digit, and files of its own
/// have one such as `2*abc:3x4`.
fn id_and_rest(entry: &str) -> Result<(u64, &str), String> {
    entry
        .split_once(':')
        .and_then(|(id, rest)| {
            let digits = id.find(|c: char| !c.is_ascii_digit()).map_or(id, |end| &id[..end]);
            Some((digits.parse().ok()?, rest))
        })
        .ok_or_else(|| format!("{:?} is not ID:VALUE, with a number before the colon", plain(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_options() {
        let rows: &[(Knob, &str, &[&[&str]])] = &[
            (Knob::InShapes, "", &[&[]]),
            (
                Knob::InShapes,
                ",0:2x3*ba+1:-,2:*acdb,3:scalar,4:0,5:2x3*8x1,6:3x1+7*ab:3x4,+8:2++9:2+,1:abcd",
                &[
                    &[],
                    &["--shape 0=2x3*ba", "--shape 1=-"],
                    &["--shape 2=*acdb"],
                    &["--shape 3=scalar"],
                    &["--shape 4=0"],
                    &["--shape 5=2x3*8x1"],
                    &["--shape 6=3x1", "--shape 7=3x4"],
                    &["--shape 8=2", "--shape 9=2"],
                    &["--shape 1=abcd"],
                ],
            ),
            (
                Knob::OpAttrs,
                "0:pads_begin:1x1*axis:-2+34107656704:qtype:undef,",
                &[&["--attr 0.pads_begin=1x1", "--attr 0.axis=-2", "--attr 34107656704.qtype=undef"], &[]],
            ),
            (
                Knob::DataTypes,
                "f32,undef,1:bf16+2:s8,3:undef+4:f16",
                &[&["--type f32"], &[], &["--type 1=bf16", "--type 2=s8"], &["--type 4=f16"]],
            ),
            (
                Knob::OpAttrs,
                "0:scales:1.666667x1*strides:1.666667x-2.5*epsilon:0.5*group_shape:1.5xa",
                &[&[
                    "--attr 0.scales=1.666667x1",
                    "--attr 0.strides=1x-2",
                    "--attr 0.epsilon=0.5",
                    "--attr 0.group_shape=1.5xa",
                ]],
            ),
            (
                Knob::OpAttrs,
                "0:sizes:1.666667x2+1:sizes:5x8",
                &[&["--attr 0.sizes=undef", "--attr 0.scales=1.666667x2", "--attr 1.sizes=5x8"]],
            ),
            (Knob::OpAttrs, "0:accumulation_mode::strict", &[&["--attr 0.accumulation_mode=strict"]]),
            (Knob::OpKinds, "0:Add,0:undef", &[&["--op-kind 0=Add"], &["--op-kind 0=undef"]]),
            (Knob::Properties, "3:host_scalar", &[&["--property 3=host_scalar"]]),
            (Knob::MathModes, "strict,bf16:true", &[&["--fpmath strict"], &["--fpmath bf16:true"]]),
            (Knob::Batches, "0,20", &[&[], &["--mb 20"]]),
        ];
        for (knob, list, expected) in rows {
            let found = knob.alternatives(list).unwrap();
            let found: Vec<Vec<String>> = found
                .iter()
                .map(|options| options.iter().map(|(name, value)| format!("{name} {value}")).collect())
                .collect();
            assert_eq!(&found, expected, "{knob:?} {list}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_named() {
        let rows: &[(Knob, &str, &str)] = &[
            (Knob::InShapes, "0:2x3,x:4", "\"x:4\" is not ID:VALUE"),
            (Knob::InShapes, "2x3", "\"2x3\" is not ID:VALUE"),
            (Knob::InShapes, "*2:3", "\"*2:3\" is not ID:VALUE"),
            (Knob::OpAttrs, "0:axis", "\"axis\" is not ATTRIBUTE:VALUE"),
            (Knob::OpAttrs, "0:axis:1*", "\"\" is not ATTRIBUTE:VALUE"),
            (Knob::DataTypes, "f33", "no type is called \"f33\""),
            (Knob::DataTypes, "0:f32+1", "\"1\" is not ID:VALUE"),
            (Knob::MathModes, "bf16:maybe", "\"maybe\" is neither true nor false"),
            (Knob::Batches, "-1", "\"-1\" is no number of samples"),
        ];
        for (knob, list, message) in rows {
            let error = knob.alternatives(list).unwrap_err();
            assert!(error.contains(message), "{knob:?} {list}: {error}");
        }
    }
}
