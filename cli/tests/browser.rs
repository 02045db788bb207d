//! Promise: on the page of `sterna inspect`, a click on a partition, or Enter, shows its plan; nothing on it
//! comes from elsewhere, and it can be read in the dark.
//!
//! With `STERNA_TEST_TOOLS=1`, which `.ci/run` sets, headless Chromium is driven through chromedriver.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{Room, graph, graphs, op, sterna, tensor};
use serde_json::{Value, json};

/// Under which name WebDriver hands out elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const ENTER: &str = "\u{e007}";

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

#[test]
fn a_click_on_a_partition_shows_its_plan() {
    if std::env::var_os("STERNA_TEST_TOOLS").is_none() {
        eprintln!("skipped: Chromium; STERNA_TEST_TOOLS=1 runs it");
        return;
    }
    let room = Room::new();
    let browser = Browser::start(&room);
    for name in ["gpt_additive_mask", "causal_mask", "swin_selects", "select_plain"] {
        let partitions = open(&browser, &room, graphs().join(format!("{name}.json")).to_str().unwrap());
        assert!(browser.is_displayed("#overview"), "{name}");
        for part in 0..partitions {
            let (link, section) = (format!("svg a.of-{part}"), format!("#partition-{part}"));
            assert!(
                !browser.is_displayed(&section),
                "{name}: partition {part} is shown before it is asked for"
            );
            browser.click(&link);
            assert!(browser.is_displayed(&section), "{name}: a click on partition {part} shows nothing");
            assert!(!browser.is_displayed("#overview"), "{name}: the overview stays");
            let text = browser.text(&section);
            let has_plan =
                text.contains("\nPlan\n") && text.contains("\nkernels\n") && text.contains(" to tensor ");
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

    // In the dark: light text on a dark ground, in the page and in the picture.
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    let lightness = |css: &str, property: &str| {
        let colour = browser.style(css, property);
        let digits = colour.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
        digits.take(3).sum::<u32>()
    };
    assert!(lightness("body", "background-color") > 700);
    browser.post("/goog/cdp/execute", &json!({"cmd": "Emulation.setEmulatedMedia", "params": dark}));
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
    assert_eq!(browser.all("script, img, b:not(.steps b)").len(), 0);
    assert!(browser.get("/title").as_str().unwrap().ends_with("<b>hostile.json – Sterna"));
    browser.click("svg a.of-0");
    assert!(browser.text("#partition-0 table").contains(name), "{}", browser.text("#partition-0 table"));
}
