//! How the page looks and sounds: names, landmarks, contrast, the way of the Tab key, small screens.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::browser::{Browser, TAB};
use crate::server::Stage;

/// What a person can act on.
const ACTIVE: &str =
    "button, input:not([type=file]), select, textarea, a[href], summary, [tabindex='0'], [role=tab]";

async fn everything_has_a_name(page: &Browser) {
    let mut named = 0;
    for element in page.elements(ACTIVE).await {
        if page.property(&element, "displayed").await != true {
            continue;
        }
        let label = page.property(&element, "computedlabel").await;
        let role = page.property(&element, "computedrole").await;
        assert!(
            label.as_str().is_some_and(|label| !label.trim().is_empty()),
            "a {role} without a name: {element}"
        );
        assert!(
            !["none", "generic"].contains(&role.as_str().unwrap_or("none")),
            "{label} has no role"
        );
        named += 1;
    }
    assert!(named > 5, "only {named} elements were looked at");
}

async fn the_page_has_landmarks(page: &Browser) {
    let marks = page
        .js("return [document.documentElement.lang, document.title.length > 0, document.querySelectorAll('h1').length, document.querySelectorAll('main').length, document.querySelectorAll('body > header').length, [...document.querySelectorAll('nav, aside')].every((n) => n.getAttribute('aria-label')), document.querySelectorAll('[role=log][aria-live=polite]').length];")
        .await;
    assert_eq!(marks, json!(["en", true, 1, 1, 1, true, 1]));
    let twins = page
        .js("const ids = [...document.querySelectorAll('[id]')].map((n) => n.id); return ids.filter((id, at) => ids.indexOf(id) !== at);")
        .await;
    assert_eq!(twins, json!([]), "ids are given once");
}

/// Every visible text against what is behind it, by the WCAG formula.
const CONTRAST: &str = r"
const read = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
const behind = (node) => { const stack = []; for (let n = node; n; n = n.parentElement) { const c = read(getComputedStyle(n).backgroundColor); stack.push(c); if (c[3] === 1) break; } return stack.reverse().reduce((under, c) => over(c, under), [255, 255, 255, 1]); };
const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const bad = []; let seen = 0;
for (const node of document.querySelectorAll('body *')) {
  const texts = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const field = node.matches('textarea, input, select');
  if (!(texts || field) || !node.checkVisibility({ visibilityProperty: true }) || node.closest('.hidden, .skip, :disabled')) continue;
  const style = getComputedStyle(node);
  const back = behind(node);
  const pairs = [style.color];
  if (field) pairs.push(getComputedStyle(node, '::placeholder').color);
  for (const colour of pairs) {
    const [a, b] = [light(over(read(colour), back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) bad.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`);
  }
}
return [seen, bad];";

pub(crate) async fn text_is_readable(page: &Browser, what: &str) {
    let found = page.js(CONTRAST).await;
    assert!(found[0].as_u64() > Some(30), "{what}: only {} texts", found[0]);
    assert_eq!(found[1], json!([]), "{what}");
}

async fn tab_reaches_everything(page: &Browser) {
    let wanted = page
        .js(&format!(
            "document.activeElement.blur(); window.scrollTo(0, 0); let n = 0; return [...document.querySelectorAll(\"{ACTIVE}\")].filter((e) => e.checkVisibility({{ visibilityProperty: true }}) && !e.disabled && e.tabIndex >= 0).map((e) => e.dataset.stop = String(n++));"
        ))
        .await;
    let wanted: BTreeSet<String> = strings(&wanted);
    assert!(wanted.len() > 12, "{wanted:?}");
    let mut reached = BTreeSet::new();
    for _ in 0..wanted.len() + 5 {
        page.press(TAB).await;
        let focus = page
            .js("const e = document.activeElement; const s = getComputedStyle(e); const box = e.closest('.composer'); const ring = s.outlineStyle !== 'none' || (box && getComputedStyle(box).borderTopColor === getComputedStyle(document.querySelector('#send')).backgroundColor); return [e.dataset.stop ?? '', e === document.body || ring, e.outerHTML.slice(0, 120)];")
            .await;
        assert_eq!(focus[1], true, "the focus cannot be seen: {}", focus[2]);
        reached.extend(
            focus[0]
                .as_str()
                .filter(|stop| !stop.is_empty())
                .map(str::to_owned),
        );
    }
    let missed: Vec<_> = wanted.difference(&reached).collect();
    let missed_html = page
        .js(&format!("return {}.map((n) => document.querySelector(`[data-stop=\"${{n}}\"]`)?.outerHTML.slice(0, 160));", json!(missed)))
        .await;
    assert!(missed.is_empty(), "Tab never reaches {missed_html}");
}

fn strings(value: &Value) -> BTreeSet<String> {
    let list = value.as_array().unwrap().iter();
    list.map(|one| one.as_str().unwrap().to_owned()).collect()
}

async fn a_lively_chat(stage: &Stage) {
    stage.say("hello there").await;
    stage.wait_for_reply("echo: hello there").await;
    stage.say("can you do **bold** and `code`?").await;
    stage.wait_for_reply("can you do").await;
    stage.say("fail").await;
    stage.wait_for_reply("asked to fail").await;
}

#[tokio::test]
async fn the_page_is_named_readable_and_walkable_in_both_themes() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    everything_has_a_name(page).await;
    the_page_has_landmarks(page).await;
    for theme in ["light", "dark"] {
        page.prefer(theme).await;
        text_is_readable(page, &format!("welcome, {theme}")).await;
        page.picture(&format!("welcome-{theme}")).await;
    }
    page.prefer("light").await;
    page.shape(1200, 640).await;
    a_lively_chat(&stage).await;
    page.picture("tour").await;
    page.shape(1280, 800).await;
    page.click(".row").await;
    page.until("a frame in full", "!document.querySelector('#detail').hidden")
        .await;
    everything_has_a_name(page).await;
    tab_reaches_everything(page).await;
    stage.survives("duplicate").await;
    everything_has_a_name(page).await;
    tab_reaches_everything(page).await;
    for theme in ["light", "dark"] {
        page.prefer(theme).await;
        text_is_readable(page, &format!("faults, {theme}")).await;
        page.picture(&format!("faults-{theme}")).await;
        page.click("#tab-wire").await;
        text_is_readable(page, &format!("wire, {theme}")).await;
        page.picture(&format!("wire-{theme}")).await;
        page.click("#tab-faults").await;
    }
    // The button wins over what the system prefers, and is remembered.
    page.click("#theme").await;
    let ground = "getComputedStyle(document.body).backgroundColor";
    page.until(
        "light, though dark is preferred",
        &format!("{ground} === 'rgb(245, 246, 249)'"),
    )
    .await;
    page.open(&stage.url).await;
    page.until(
        "light after a reload",
        &format!("{ground} === 'rgb(245, 246, 249)'"),
    )
    .await;
    stage.wait_for_reply("echo: hello there").await;
}

#[tokio::test]
async fn a_small_phone_shows_one_part_at_a_time_and_nothing_sticks_out() {
    let Some(stage) = Stage::set("discord").await else {
        return;
    };
    let page = &stage.browser;
    page.shape(360, 740).await;
    page.picture("phone-welcome").await;
    a_lively_chat(&stage).await;
    stage.say(&"wide".repeat(60)).await;
    stage.wait_for_reply("widewide").await;
    for view in ["talk", "chats", "wire", "faults"] {
        page.click(&format!(".views [data-view={view}]")).await;
        page.until("the view", &format!("document.body.dataset.view === '{view}'"))
            .await;
        let wide = page.js("return document.documentElement.scrollWidth;").await;
        assert!(wide.as_u64() <= Some(360), "{view} is {wide} wide");
        let small = page
            .js("return [...document.querySelectorAll('button, select')].filter((b) => b.checkVisibility()).map((b) => b.getBoundingClientRect()).filter((r) => r.right > 360 || r.left < 0).length;")
            .await;
        assert_eq!(small, 0, "{view}: buttons beyond the edge");
        everything_has_a_name(page).await;
        for theme in ["light", "dark"] {
            page.prefer(theme).await;
            text_is_readable_small(page, view).await;
            page.picture(&format!("phone-{view}-{theme}")).await;
        }
    }
}

async fn text_is_readable_small(page: &Browser, what: &str) {
    assert_eq!(page.js(CONTRAST).await[1], json!([]), "{what}");
}
