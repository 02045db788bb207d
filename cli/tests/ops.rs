//! Promise: `sterna ops` prints every kind, and each in detail.

mod common;

use common::sterna;

#[test]
fn ops_prints_every_kind_and_each_in_detail() {
    let table = sterna(&["ops"]);
    assert_eq!((table.code, table.err.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = table
        .out
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 110);
    let row = |kind: &str| rows.iter().find(|row| row[0] == kind).unwrap();
    assert_eq!(row("Select")[..], ["Select", "81", "3", "1", "compiled"]);
    assert_eq!(row("MatMul")[..], ["MatMul", "39", "2", "or", "3", "1", "compiled"]);
    assert_eq!(row("TypeCast").last(), Some(&"compiled"));
    assert_eq!(row("Convolution").last(), Some(&"no"));

    for row in &rows {
        let detail = sterna(&["ops", row[0]]);
        assert_eq!((detail.code, detail.err.as_str()), (0, ""), "{row:?}");
        assert!(detail.out.starts_with(&format!("{}, code {}, runs: ", row[0], row[1])), "{}", detail.out);
    }

    let select = sterna(&["ops", "Select"]).out;
    for line in [
        "inputs: 3\n  0 cond: T1\n  1 then: T2\n  2 else: T2\n",
        "outputs: 1\n  0 dst: T2\n",
        "  T1: boolean\n",
        "  auto_broadcast: string, default numpy, one of none, numpy, pdpd, multidirectional\n",
        "  axis: s64, optional\n",
        "checks: AxisNeedsPdpd\n",
    ] {
        assert!(select.contains(line), "{line:?} in {select}");
    }
    assert!(sterna(&["ops", "GenIndex"]).out.contains("lends only its shape"));
    assert!(sterna(&["ops", "GenIndex"]).out.contains("  axis: s64, required\n"));
}
