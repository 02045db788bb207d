// The page without this script shows everything; the script moves the picture, zooms and searches.
(() => {
    "use strict";
    const one = (css) => document.querySelector(css);
    const [picture, panel, tools, search, found] = [".picture", ".panel", "header .tools", "#search", "#found"].map(one);
    const svg = picture.querySelector("svg");
    const natural = svg.viewBox.baseVal;
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    document.querySelectorAll(".tools").forEach((element) => element.hidden = false);

    // Zoom

    const MIN = 0.02, MAX = 8, STEP = 1.25;
    let fits = false;

    const scale = () => svg.getBoundingClientRect().width / natural.width;

    // Keeps the point of the picture that is at a place of the window there.
    function zoom(to, x, y) {
        const view = picture.getBoundingClientRect(), before = svg.getBoundingClientRect(), from = scale();
        x ??= view.left + picture.clientWidth / 2;
        y ??= view.top + picture.clientHeight / 2;
        to = Math.min(MAX, Math.max(MIN, to));
        svg.style.minWidth = "0";
        svg.style.maxWidth = "none";
        svg.style.width = `${natural.width * to}px`;
        svg.style.height = `${natural.height * to}px`;
        const after = svg.getBoundingClientRect();
        picture.scrollLeft += after.left + (x - before.left) / from * to - x;
        picture.scrollTop += after.top + (y - before.top) / from * to - y;
        fits = false;
    }

    function fit() {
        zoom(Math.min(1.5, picture.clientWidth / natural.width, picture.clientHeight / natural.height));
        fits = true;
    }

    addEventListener("resize", () => fits && fit());
    picture.addEventListener("wheel", (event) => {
        if (event.ctrlKey || event.metaKey) {
            event.preventDefault();
            zoom(scale() * STEP ** (-event.deltaY / 100), event.clientX, event.clientY);
        }
    }, { passive: false });

    // A mouse drags the picture; a click that ends a drag chooses nothing.
    let grip = null, dragged = false;
    picture.addEventListener("pointerdown", (event) => {
        dragged = false;
        if (event.pointerType === "mouse" && event.button === 0 && svg.contains(event.target)) {
            grip = [event.clientX, event.clientY, picture.scrollLeft, picture.scrollTop];
        }
    });
    addEventListener("pointermove", (event) => {
        if (!grip) {
            return;
        }
        const [x, y, left, top] = grip;
        dragged ||= Math.hypot(event.clientX - x, event.clientY - y) > 5;
        if (dragged) {
            picture.scrollTo(left + x - event.clientX, top + y - event.clientY);
        }
    });
    addEventListener("pointerup", () => grip = null);
    picture.addEventListener("dragstart", (event) => event.preventDefault());
    picture.addEventListener("click", (event) => {
        if (dragged) {
            event.preventDefault();
            event.stopPropagation();
        }
    }, true);

    // The partition that is shown, in the picture

    const chosen = () => {
        const match = /^#partition-(\d+)$/.exec(location.hash);
        return match && Number(match[1]);
    };
    const count = document.querySelectorAll("section.partition").length;

    // Scrolls the picture to some of its elements, unless all of them are seen.
    function reveal(elements, atOnce) {
        const boxes = [...elements].map((element) => element.getBoundingClientRect());
        if (!boxes.length) {
            return;
        }
        const view = picture.getBoundingClientRect();
        const offset = (least, most, start, room) => {
            const [from, to] = [Math.min(...least) - start, Math.max(...most) - start];
            if (from >= 0 && to <= room) {
                return 0;
            }
            return to - from > room ? from - 16 : (from + to - room) / 2;
        };
        picture.scrollBy({
            left: offset(boxes.map((box) => box.left), boxes.map((box) => box.right), view.left, picture.clientWidth),
            top: offset(boxes.map((box) => box.top), boxes.map((box) => box.bottom), view.top, picture.clientHeight),
            behavior: atOnce || calm.matches ? "auto" : "smooth",
        });
    }

    let fromPicture = false;
    svg.addEventListener("click", () => {
        fromPicture = true;
        setTimeout(() => fromPicture = false, 100);
    });
    function follow(atOnce) {
        panel.scrollTop = 0;
        const part = chosen();
        if (part !== null && !fromPicture) {
            reveal(svg.querySelectorAll(`.of-${part}`), atOnce);
        }
    }
    addEventListener("hashchange", () => follow(false));
    // The browser places the page first.
    addEventListener("load", () => requestAnimationFrame(() => follow(true)));

    function choose(part) {
        location.hash = part === null ? "#overview" : `#partition-${part}`;
    }

    // Search

    const nodes = [...svg.querySelectorAll(".node")];
    const texts = nodes.map((node) => node.textContent.toLowerCase());
    const rows = [...document.querySelectorAll("#overview tr[data-part]")];
    let hits = [], at = -1;

    const partOf = (node) => /\bof-(\d+)/.exec(node.getAttribute("class"))?.[1];

    function look() {
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        const isHit = (text) => words.length > 0 && words.every((word) => text.includes(word));
        hits = nodes.filter((node, index) => node.classList.toggle("hit", isHit(texts[index])));
        at = -1;
        svg.classList.toggle("searching", words.length > 0);
        nodes.forEach((node) => node.classList.remove("current"));
        const parts = new Set(hits.map(partOf));
        rows.forEach((row) => row.hidden = words.length > 0 && !parts.has(row.dataset.part));
        found.textContent = words.length ? `${hits.length} found` : "";
    }

    function step(by) {
        if (!hits.length) {
            return;
        }
        at = at < 0 && by < 0 ? hits.length - 1 : (at + by + hits.length) % hits.length;
        nodes.forEach((node) => node.classList.toggle("current", node === hits[at]));
        found.textContent = `${at + 1} of ${hits.length}`;
        const part = partOf(hits[at]);
        if (part !== undefined) {
            fromPicture = true;
            choose(part);
            // A browser takes the focus to the section.
            search.focus({ preventScroll: true });
            setTimeout(() => fromPicture = false, 100);
        }
        reveal([hits[at]]);
    }

    search.addEventListener("input", look);
    search.addEventListener("keydown", (event) => {
        if (event.key === "Enter") {
            step(event.shiftKey ? -1 : 1);
        } else if (event.key === "Escape") {
            search.value = "";
            look();
            search.blur();
        } else {
            return;
        }
        event.preventDefault();
        event.stopPropagation();
    });

    // Keys and buttons

    const next = (by) => choose(Math.min(count - 1, Math.max(0, (chosen() ?? (by > 0 ? -1 : count)) + by)));
    const acts = {
        "/": () => search.focus(),
        "n": () => next(1),
        "p": () => next(-1),
        "Escape": () => choose(null),
        "+": () => zoom(scale() * STEP),
        "-": () => zoom(scale() / STEP),
        "0": fit,
        "1": () => zoom(1),
    };
    acts["="] = acts["+"];
    addEventListener("keydown", (event) => {
        const isTyped = event.target === search || event.ctrlKey || event.metaKey || event.altKey;
        if (!isTyped && Object.hasOwn(acts, event.key)) {
            event.preventDefault();
            acts[event.key]();
        }
    });
    tools.addEventListener("click", (event) => {
        const key = event.target.closest("button")?.dataset.key;
        if (key) {
            acts[key]();
        }
    });
})();
