//! Promise: `sterna ops` prints every kind, and each in detail, as `docs/ops.md` says it.

use crate::common::sterna;

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
    assert_eq!(rows.len(), 123);
    let row = |kind: &str| rows.iter().find(|row| row[0] == kind).unwrap();
    assert_eq!(row("Select")[..], ["Select", "81", "3", "1", "compiled"]);
    assert_eq!(row("MatMul")[..], ["MatMul", "39", "2", "or", "3", "1", "compiled"]);
    assert_eq!(row("TypeCast").last(), Some(&"compiled"));
    // The kinds that partitions do not run, and no others.
    let runner = |kind: &str| match kind {
        "End" | "Wildcard" => "no",
        _ => "compiled",
    };
    let wrong = rows.iter().filter(|row| row.last() != Some(&runner(row[0])));
    crate::common::none_of(wrong.map(|row| row.join(" ")).collect());

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
        "\nThe second operand if the first is not 0, else the third, bit for bit.\n\n",
        "shapes\n  Under `numpy`, `then` and `else` broadcast to each other",
        "checks\n  `axis` needs `auto_broadcast` = `pdpd`",
        "accuracy\n  exact.\n",
    ] {
        assert!(select.contains(line), "{line:?} in {select}");
    }
    assert!(sterna(&["ops", "GenIndex"]).out.contains("shape-only"));
    assert!(sterna(&["ops", "GenIndex"]).out.contains("  axis: s64, required\n"));

    // The command prints the page's section on a kind word by word, and of a kind that nothing computes it
    // says so.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ops.md")).unwrap();
    let mut wrong = Vec::new();
    for row in &rows {
        let out = sterna(&["ops", row[0]]).out;
        let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
        match page.split_once(&format!("\n## {}\n", row[0])) {
            Some((_, section)) => {
                let section = section.split("\n## ").next().unwrap();
                let shown = ["- Code", "- Types", "- Attributes"];
                let lines = section.lines().filter(|line| !shown.iter().any(|label| line.starts_with(label)));
                let said = lines.map(|line| match line.strip_prefix("- ") {
                    Some(item) => item.split_once(": ").unwrap().1,
                    None => line,
                });
                let missing = said
                    .filter(|line| !words.contains(&line.split_whitespace().collect::<Vec<_>>().join(" ")));
                wrong.extend(missing.map(|line| format!("{}: no {line:?}", row[0])));
            }
            None if words.contains("Nothing here computes the op") => {}
            None => wrong.push(format!("{}: {out}", row[0])),
        }
    }
    crate::common::none_of(wrong);
}
