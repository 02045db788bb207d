//! Promise: on the page of `sterna inspect`, a click on a partition, or Enter, shows its plan, with scripts
//! and without; nothing on it comes from elsewhere, and it can be read in the dark. Its script moves the
//! picture to the partition that is chosen, zooms, searches and takes keys.
//!
//! With `STERNA_TEST_TOOLS=1`, which `.ci/run` sets, headless Chromium is driven through chromedriver.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::{Room, graph, graphs, op, sterna, tensor};
use serde_json::{Value, json};

/// Under which name WebDriver hands out elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// A browser that shows one page.
struct Browser {
    driver: Child,
    /// Open for as long as the driver may print.
    _said: BufReader<ChildStdout>,
    session: String,
}

impl Browser {
    fn start(room: &Room) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts; Debian's package is chromium-driver");
        let mut said = BufReader::new(driver.stdout.take().unwrap());
        let mut line = String::new();
        let port = loop {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "chromedriver ended");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim().trim_end_matches('.').to_owned();
            }
        };
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,900",
            &format!("--user-data-dir={}", room.path("profile")),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}});
        let mut browser = Self { driver, _said: said, session: format!("http://127.0.0.1:{port}") };
        let session = browser.post("/session", &wanted);
        browser.session = format!("{}/session/{}", browser.session, session["sessionId"].as_str().unwrap());
        browser
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let request =
            ureq::post(format!("{}{path}", self.session)).config().http_status_as_error(false).build();
        answer(path, request.send_json(body))
    }

    fn get(&self, path: &str) -> Value {
        let request =
            ureq::get(format!("{}{path}", self.session)).config().http_status_as_error(false).build();
        answer(path, request.call())
    }

    fn all(&self, css: &str) -> Vec<String> {
        let found = self.post("/elements", &json!({"using": "css selector", "value": css}));
        found
            .as_array()
            .unwrap()
            .iter()
            .map(|element| element[ELEMENT].as_str().unwrap().to_owned())
            .collect()
    }

    fn one(&self, css: &str) -> String {
        let mut all = self.all(css);
        assert!(!all.is_empty(), "nothing is {css}");
        all.swap_remove(0)
    }

    fn is_displayed(&self, css: &str) -> bool {
        self.get(&format!("/element/{}/displayed", self.one(css))) == json!(true)
    }

    fn text(&self, css: &str) -> String {
        self.get(&format!("/element/{}/text", self.one(css))).as_str().unwrap().to_owned()
    }

    /// The value of a property of the style that an element ends up with.
    fn style(&self, css: &str, property: &str) -> String {
        self.get(&format!("/element/{}/css/{property}", self.one(css))).as_str().unwrap().to_owned()
    }

    /// Clicks on the middle of an element, whatever is drawn over it.
    fn click(&self, css: &str) {
        let origin = json!({ELEMENT: self.one(css)});
        let moves = json!([
            {"type": "pointerMove", "duration": 0, "origin": origin, "x": 0, "y": 0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]);
        self.post("/actions", &json!({"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]}));
    }

    fn press(&self, css: &str, key: &str) {
        self.post(&format!("/element/{}/value", self.one(css)), &json!({"text": key}));
    }

    /// Types on the keyboard, wherever the focus is.
    fn type_keys(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key.to_string()})))
            .collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]}));
    }

    /// The value of an expression in the page.
    fn value(&self, expression: &str) -> Value {
        self.post("/execute/sync", &json!({"script": format!("return {expression}"), "args": []}))
    }

    fn command(&self, name: &str, params: &Value) {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": params}));
    }

    /// Waits until something holds, which it may do after a frame or two.
    fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..100 {
            if holds(self) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{what}");
    }

    /// True if all of an element lies in the part of the picture that is seen.
    fn is_seen(&self, css: &str) -> bool {
        const SIDES: &str = "getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]";
        let of = |css: &str| {
            self.value(&format!("(() => {{ const box = document.querySelector({css:?}).{SIDES} }})()"))
        };
        let [inner, outer]: [Vec<f64>; 2] = [of(css), of(".picture")]
            .map(|sides| sides.as_array().unwrap().iter().map(|side| side.as_f64().unwrap()).collect());
        inner[0] >= outer[0] && inner[1] >= outer[1] && inner[2] <= outer[2] && inner[3] <= outer[3]
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn answer(path: &str, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Value {
    let mut body: Value = answer.unwrap().body_mut().read_json().unwrap();
    let value = body["value"].take();
    assert!(value.get("error").is_none(), "{path}: {value}");
    value
}

/// Makes the page of a graph and opens it; answers with the number of partitions.
fn open(browser: &Browser, room: &Room, graph: &str) -> usize {
    let page = room.path("page.html");
    let ended = sterna(&["inspect", graph, "--output", &page]);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{graph}");
    browser.post("/url", &json!({"url": "about:blank"}));
    browser.post("/url", &json!({"url": format!("file://{page}")}));
    browser.all("section.partition").len()
}

/// True if the environment asks for the tests here.
fn is_asked_for() -> bool {
    let is_asked_for = std::env::var_os("STERNA_TEST_TOOLS").is_some();
    if !is_asked_for {
        eprintln!("skipped: Chromium; STERNA_TEST_TOOLS=1 runs it");
    }
    is_asked_for
}

#[test]
fn a_click_on_a_partition_shows_its_plan() {
    if !is_asked_for() {
        return;
    }
    let room = Room::new();
    let browser = Browser::start(&room);
    for (name, scripts) in [
        ("gpt_additive_mask", true),
        ("causal_mask", true),
        ("swin_selects", true),
        ("select_plain", true),
        ("gpt_additive_mask", false),
        ("select_plain", false),
    ] {
        browser.command("Emulation.setScriptExecutionDisabled", &json!({"value": !scripts}));
        let partitions = open(&browser, &room, graphs().join(format!("{name}.json")).to_str().unwrap());
        assert!(browser.is_displayed("#overview"), "{name}");
        // No tools that do nothing.
        assert_eq!(browser.is_displayed("#search"), scripts, "{name}");
        for part in 0..partitions {
            let (link, section) = (format!("svg a.of-{part}"), format!("#partition-{part}"));
            assert!(
                !browser.is_displayed(&section),
                "{name}: partition {part} is shown before it is selected"
            );
            browser.click(&link);
            assert!(browser.is_displayed(&section), "{name}: a click on partition {part} shows nothing");
            assert!(!browser.is_displayed("#overview"), "{name}: the overview stays");
            let text = browser.text(&section);
            let has_plan =
                text.contains("\nPlan\n") && text.contains("\nkernels\n") && text.contains(" to dst");
            assert!(has_plan || text.contains("no kernel runs "), "{name}: {text}");
            assert_eq!(
                browser.style(&format!("{link} > rect"), "stroke-width"),
                "4px",
                "{name}: it is not marked"
            );
        }
        browser.click(&format!("#partition-{} nav a", partitions - 1));
        assert!(browser.is_displayed("#overview"), "{name}: there is no way back");
        browser.press("svg a.of-0", ENTER);
        assert!(browser.is_displayed("#partition-0"), "{name}: the keyboard shows nothing");
    }
    browser.command("Emulation.setScriptExecutionDisabled", &json!({"value": false}));

    // In the dark: light text on a dark ground, in the page and in the picture.
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    let lightness = |css: &str, property: &str| {
        let colour = browser.style(css, property);
        let digits = colour.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
        digits.take(3).sum::<u32>()
    };
    assert!(lightness("body", "background-color") > 700);
    browser.command("Emulation.setEmulatedMedia", &dark);
    for (css, ground) in [("body", "background-color"), ("svg .back", "fill"), ("svg .alone", "fill")] {
        assert!(lightness(css, ground) < 200, "{css} stays light");
    }
    for (css, ink) in [("body", "color"), ("svg .label", "fill"), ("svg .kind", "fill")] {
        assert!(lightness(css, ink) > 600, "{css} stays dark");
    }

    // Names are text, whatever they look like.
    let name = "</title><script>document.title='gone'</script>\"><img src=x onerror=alert(1)>&amp;";
    let mut relu = op(0, "ReLU", vec![tensor(0, "f32", &[4])], vec![tensor(1, "f32", &[4])]);
    relu["name"] = json!(name);
    open(&browser, &room, &room.write("<b>hostile.json", graph(vec![relu])));
    assert_eq!((browser.all("script").len(), browser.all("img, b:not(.steps b)").len()), (1, 0));
    assert!(browser.get("/title").as_str().unwrap().ends_with("<b>hostile.json – Sterna"));
    browser.click("svg a.of-0");
    assert!(browser.text("#partition-0 table").contains(name), "{}", browser.text("#partition-0 table"));
}

/// A column of so many ops, every fifth of which nothing runs.
fn column(ops: usize) -> String {
    let one = |id: usize| {
        let kind = if id % 5 == 4 { "Wildcard" } else { "Add" };
        let inputs = vec![tensor(id, "f32", &[4]), tensor(id.saturating_sub(2), "f32", &[4])];
        let mut one = op(id, kind, inputs, vec![tensor(id + 1, "f32", &[4])]);
        one["name"] = json!(format!("layer.{id}"));
        one
    };
    graph((0..ops).map(one).collect())
}

#[test]
fn the_script_moves_zooms_and_searches() {
    if !is_asked_for() {
        return;
    }
    let room = Room::new();
    let browser = Browser::start(&room);
    let calm = json!({"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]});
    browser.command("Emulation.setEmulatedMedia", &calm);
    let partitions = open(&browser, &room, &room.write("graph.json", column(60)));
    assert_eq!(partitions, 24);
    let frame = |part: usize| format!("svg .of-{part} > rect");

    // A partition that is chosen in the list comes into view.
    assert!(browser.is_seen(&frame(0)) && !browser.is_seen(&frame(23)));
    browser.post(&format!("/element/{}/click", browser.one("#overview tr:last-child a")), &json!({}));
    assert!(browser.is_displayed("#partition-23"));
    browser.wait("the last partition is out of sight", |browser| browser.is_seen(&frame(23)));
    // So does one that the page is opened at, and the next and the previous one.
    browser.post("/url", &json!({"url": "about:blank"}));
    browser.post("/url", &json!({"url": format!("file://{}#partition-12", room.path("page.html"))}));
    browser.wait("partition 12 is out of sight", |browser| browser.is_seen(&frame(12)));
    browser.type_keys("nnn");
    browser.wait("partition 15 is out of sight", |browser| browser.is_seen(&frame(15)));
    browser.type_keys("p");
    browser.wait("partition 14 is not shown", |browser| browser.is_displayed("#partition-14"));
    browser.type_keys(ESCAPE);
    browser.wait("the overview is not shown", |browser| browser.is_displayed("#overview"));

    // Zoom, by keys and by buttons: the picture as it is, larger, smaller, and whole.
    let width =
        || browser.value("document.querySelector('svg').getBoundingClientRect().width").as_f64().unwrap();
    let natural = browser.value("document.querySelector('svg').viewBox.baseVal.width").as_f64().unwrap();
    browser.type_keys("1");
    assert!((width() - natural).abs() < 1.0, "{} {natural}", width());
    browser.type_keys("+");
    assert!((width() - 1.25 * natural).abs() < 1.0, "{} {natural}", width());
    browser.click("button[data-key='-']");
    browser.click("button[data-key='-']");
    assert!((width() - 0.8 * natural).abs() < 1.0, "{} {natural}", width());
    browser.click("button[data-key='0']");
    browser.wait("the picture does not fit", |browser| browser.is_seen("svg"));
    browser.type_keys("1");

    // Search by kind, name and id.
    browser.type_keys("/wildcard LAYER.5");
    assert_eq!(browser.text("#found"), "2 found");
    assert_eq!(browser.all("#overview tr[data-part]:not([hidden])").len(), 2);
    let hit = |css: &str| browser.text(&format!("svg .{css} .small"));
    browser.type_keys(ENTER);
    assert_eq!((browser.text("#found").as_str(), hit("current").as_str()), ("1 of 2", "layer.54"));
    browser.wait("what is found is out of sight", |browser| browser.is_seen("svg .current > rect"));
    assert!(browser.text("section.partition:target").contains("layer.54"));
    browser.type_keys(ENTER);
    assert_eq!(hit("current"), "layer.59");
    browser.type_keys(ESCAPE);
    assert_eq!((browser.all("svg .hit").len(), browser.all("#overview tr[hidden]").len()), (0, 0));

    // A drag moves the picture, and chooses nothing.
    browser.type_keys("1");
    let hash = browser.value("location.hash");
    let place = || browser.value("document.querySelector('.picture').scrollTop").as_f64().unwrap();
    let before = place();
    let origin = json!({ELEMENT: browser.one("svg .current > rect, svg .node.of-3 > rect")});
    browser.value("document.querySelector('svg .node.of-3').scrollIntoView({block: 'center'})");
    let at = place();
    let moves = json!([
        {"type": "pointerMove", "duration": 0, "origin": origin, "x": 0, "y": 0},
        {"type": "pointerDown", "button": 0},
        {"type": "pointerMove", "duration": 50, "origin": "pointer", "x": 0, "y": -100},
        {"type": "pointerUp", "button": 0},
    ]);
    browser.post("/actions", &json!({"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]}));
    assert!((place() - at - 100.0).abs() < 2.0, "{before} {at} {}", place());
    assert_eq!(browser.value("location.hash"), hash);
}
