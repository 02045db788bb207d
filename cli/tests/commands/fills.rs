//! Promise: `--fill` gives a tensor the values that it names.

use std::fs;
use std::path::Path;

use crate::common::{Ended, Room, TYPES, complaint, none_of, read_npy, select, sterna};

/// Runs a select whose condition is filled so that it hands on a filled tensor, and reads that.
fn filled(room: &Room, dtype: &str, dims: &[i64], more: &[&str]) -> (Ended, Option<Vec<u8>>) {
    let graph = room.write("graph.json", select(dtype, dims));
    let out = room.path("out.npy");
    let _ = fs::remove_file(&out);
    let output = format!("3={out}");
    let ended = sterna(&[&["run", &graph, "--fill", "0=1", "--output", &output], more].concat());
    let elements = Path::new(&out).exists().then(|| read_npy(&out).1);
    (ended, elements)
}

#[test]
fn fills_give_the_bits_of_each_type() {
    let room = Room::new();
    let bits = |hex: &str, size: usize| {
        let value = u64::from_str_radix(hex, 16).unwrap();
        value.to_ne_bytes()[if cfg!(target_endian = "little") { 0..size } else { 8 - size..8 }].to_vec()
    };
    // Type, fill, bits of an element.
    let rows: &[(&str, &str, &str)] = &[
        ("f32", "zeros", "0"),
        ("f32", "ones", "3f800000"),
        ("f32", "-0", "80000000"),
        ("f32", "0.1", "3dcccccd"),
        ("f32", "-inf", "ff800000"),
        ("f32", "nan", "7fc00000"),
        ("f64", "1e300", "7e37e43c8800759c"),
        ("f16", "-65504", "fbff"),
        ("f16", "inf", "7c00"),
        ("f16", "ones", "3c00"),
        ("bf16", "ones", "3f80"),
        ("bf16", "3.14", "4049"),
        ("f8_e5m2", "ones", "3c"),
        ("f8_e5m2", "57344", "7b"),
        ("f8_e5m2", "-inf", "fc"),
        ("f8_e5m2", "1.1", "3c"),
        ("f8_e5m2", "1.125", "3c"),
        ("f8_e5m2", "1.375", "3e"),
        ("f8_e4m3", "ones", "38"),
        ("f8_e4m3", "-448", "fe"),
        ("f8_e4m3", "0.001953125", "1"),
        ("f8_e4m3", "nan", "7f"),
        ("boolean", "true", "1"),
        ("boolean", "false", "0"),
        ("boolean", "ones", "1"),
        ("u8", "255", "ff"),
        ("s8", "-128", "80"),
        ("s16", "-2", "fffe"),
        ("u16", "65535", "ffff"),
        ("s32", "ones", "1"),
        ("u32", "4294967295", "ffffffff"),
        ("s64", "-9223372036854775808", "8000000000000000"),
        ("u64", "18446744073709551615", "ffffffffffffffff"),
    ];
    let mut wrong = Vec::new();
    for &(dtype, fill, hex) in rows {
        let size = TYPES.iter().find(|row| row.0 == dtype).unwrap().2;
        let (ended, elements) = filled(&room, dtype, &[5], &["--fill", &format!("1={fill}")]);
        let expected = bits(hex, size).repeat(5);
        wrong.extend(complaint(&format!("{dtype} {fill}"), &ended, 0, ""));
        if elements.as_ref() != Some(&expected) {
            wrong.push(format!("{dtype} {fill}: {elements:x?} for {expected:x?}"));
        }
    }
    none_of(wrong);
}

#[test]
fn values_that_a_type_cannot_hold_are_wrong_usage() {
    let room = Room::new();
    let rows: &[(&str, &[i64], &str, &str)] = &[
        ("u8", &[2], "300", "u8 cannot hold 300"),
        ("u8", &[2], "-1", "u8 cannot hold -1"),
        ("s32", &[2], "1.5", "s32 cannot hold 1.5"),
        ("s64", &[2], "nan", "s64 cannot hold nan"),
        ("u64", &[2], "true", "u64 cannot hold true"),
        ("boolean", &[2], "2", "boolean cannot hold 2; write true or false"),
        ("f32", &[2], "true", "f32 cannot hold true"),
        ("f32", &[2], "1e39", "f32 cannot hold 1e39"),
        ("f64", &[2], "1e999", "f64 cannot hold 1e999"),
        ("f16", &[2], "65520", "f16 cannot hold 65520"),
        ("f8_e5m2", &[2], "60000", "f8_e5m2 cannot hold 60000"),
        ("f8_e4m3", &[2], "449", "f8_e4m3 cannot hold 449"),
        ("f8_e4m3", &[2], "inf", "f8_e4m3 cannot hold inf"),
        ("f32", &[2], "causal", "causal needs at least two dims"),
        ("f32", &[], "causal", "causal needs at least two dims"),
        ("f32", &[], "padding", "padding needs at least one dim"),
        ("f32", &[2], "sometimes", "\"sometimes\" is no fill"),
        ("f32", &[2], "", "\"\" is no fill"),
    ];
    let mut wrong = Vec::new();
    for &(dtype, dims, fill, message) in rows {
        let (ended, elements) = filled(&room, dtype, dims, &["--fill", &format!("1={fill}")]);
        wrong.extend(complaint(&format!("{dtype} {fill}"), &ended, 2, message));
        if elements.is_some() {
            wrong.push(format!("{dtype} {fill}: an output was written"));
        }
    }
    none_of(wrong);
}

#[test]
fn causal_is_one_on_and_below_the_diagonal_of_the_last_two_dims() {
    let room = Room::new();
    for dtype in ["u8", "boolean"] {
        let (ended, elements) = filled(&room, dtype, &[2, 3, 4], &["--fill", "1=causal"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert_eq!(elements.unwrap(), [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0].repeat(2), "{dtype}");
    }
    let (_, elements) = filled(&room, "f32", &[2, 2], &["--fill", "1=causal"]);
    assert_eq!(elements.unwrap(), [1f32, 0.0, 1.0, 1.0].map(f32::to_ne_bytes).concat());
}

#[test]
fn padding_is_one_in_the_first_elements_of_each_row() {
    let room = Room::new();
    for dtype in ["u8", "boolean"] {
        let (ended, elements) = filled(&room, dtype, &[4, 10, 7], &["--fill", "1=padding"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let elements = elements.unwrap();
        let lengths: Vec<usize> =
            elements.chunks(7).map(|row| row.iter().filter(|&&one| one == 1).count()).collect();
        assert!(lengths.iter().all(|length| (1..=7).contains(length)), "{dtype}: {lengths:?}");
        assert!(lengths.iter().any(|&length| length != lengths[0]), "{dtype}: {lengths:?}");
        for (row, length) in elements.chunks(7).zip(&lengths) {
            assert!(
                row.iter().enumerate().all(|(at, &one)| (one == 1) == (at < *length)),
                "{dtype}: {row:?}"
            );
        }
    }
}

#[test]
fn random_is_finite_varied_and_the_same_for_one_seed() {
    let room = Room::new();
    let mut wrong = Vec::new();
    for &(dtype, _, size) in TYPES {
        let value = |more: &[&str]| filled(&room, dtype, &[20, 50], more).1.unwrap();
        let first = value(&["--seed", "5"]);
        if first != value(&["--fill", "1=random", "--seed", "5", "--threads", "1"]) {
            wrong.push(format!("{dtype}: one seed gives two values"));
        }
        if first == value(&["--seed", "6"]) {
            wrong.push(format!("{dtype}: two seeds give one value"));
        }
        let elements: Vec<&[u8]> = first.chunks(size).collect();
        let mut distinct = elements.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < if dtype == "boolean" { 2 } else { 150 } {
            wrong.push(format!("{dtype}: {} distinct values", distinct.len()));
        }
        let is_fine = |element: &&[u8]| match dtype {
            "f32" => f32::from_ne_bytes((*element).try_into().unwrap()).abs() < 5.0,
            "f64" => f64::from_ne_bytes((*element).try_into().unwrap()).abs() < 5.0,
            "f16" => u16::from_ne_bytes((*element).try_into().unwrap()) & 0x7c00 != 0x7c00,
            "bf16" => u16::from_ne_bytes((*element).try_into().unwrap()) & 0x7f80 != 0x7f80,
            "f8_e5m2" => element[0] & 0x7c != 0x7c,
            "f8_e4m3" => element[0] & 0x7f != 0x7f,
            "boolean" => element[0] <= 1,
            _ => true,
        };
        wrong.extend(elements.iter().find(|element| !is_fine(element)).map(|e| format!("{dtype}: {e:x?}")));
        if dtype == "boolean" {
            let ones = first.iter().filter(|&&byte| byte == 1).count();
            if !(400..600).contains(&ones) {
                wrong.push(format!("{ones} of 1000 truth values are true"));
            }
        }
    }
    // Each tensor has values of its own: with another condition, `else` comes out.
    let then = filled(&room, "u32", &[40], &[]).1.unwrap();
    let graph = room.write("graph.json", select("u32", &[40]));
    let out = room.path("else.npy");
    assert_eq!(sterna(&["run", &graph, "--fill", "0=zeros", "--output", &format!("3={out}")]).code, 0);
    assert_ne!(then, read_npy(&out).1);
    none_of(wrong);
}
