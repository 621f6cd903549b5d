// Opens a page in headless Chromium and uses it as a person would: clicks, search, hover, keys.
// node open_page.mjs PAGE WORD    prints what was seen as JSON; exit 3 if there is no browser.
// Needs puppeteer-core where NODE_PATH leads, and a Chromium: one in PATH, or @sparticuz/chromium.
import {createRequire} from 'node:module';
import {execFileSync} from 'node:child_process';

const require = createRequire(import.meta.url);
let puppeteer, path, args = ['--no-sandbox'];
try {
  puppeteer = require('puppeteer-core');
  puppeteer = puppeteer.default || puppeteer;
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try { path = path || execFileSync('which', [name], {encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore']}).trim(); } catch { /* the next one */ }
  }
  if (!path) {
    const packed = await import(require.resolve('@sparticuz/chromium')).then(m => m.default.default || m.default);
    path = await packed.executablePath();
    args = [...packed.args, ...args];
  }
} catch (error) {
  console.error(String(error));
  process.exit(3);
}

const [page_path, word] = process.argv.slice(2);
const browser = await puppeteer.launch({executablePath: path, args, headless: 'shell'});
const page = await browser.newPage();
const seen = {errors: [], requests: [], views: {}, schemes: {}};
page.on('console', message => seen.errors.push(message.text()));
page.on('pageerror', error => seen.errors.push(error.message));
page.on('request', request => { if (!request.url().startsWith('file:')) seen.requests.push(request.url()); });
await page.setViewport({width: 1300, height: 900});
const began = Date.now();
await page.goto('file://' + page_path);
await page.waitForSelector('main h2');
seen.ready_ms = Date.now() - began;
for (const scheme of ['light', 'dark']) {
  await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
  seen.schemes[scheme] = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
}
const names = await page.$$eval('#views a', links => links.map(a => a.dataset.view));
for (const name of names) {
  await page.click(`#views a[data-view=${name}]`);
  await page.waitForFunction(n => document.querySelector(`#views a[data-view=${n}]`).getAttribute('aria-current') === 'page', {}, name);
  seen.views[name] = await page.$eval('main', main => main.innerText.length);
  const dot = await page.$('main svg.roofline circle');
  if (dot) {
    await dot.scrollIntoView();
    await page.evaluate(d => d.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 40, clientY: 40})), dot);
    seen.roof_tip = await page.$eval('#tip', tip => tip.textContent);
    await page.$eval('svg.roofline', picture => picture.focus());
    await page.keyboard.press('ArrowRight');
    seen.roof_said = await page.$eval('#say', say => say.textContent);
  }
  const canvas = await page.$('main canvas');
  if (canvas) {
    await canvas.scrollIntoView();
    const box = await canvas.boundingBox();
    for (const part of [0.2, 0.5, 0.8]) {
      await page.mouse.move(box.x + box.width * part, box.y + box.height * 0.6);
      seen.tip = await page.$eval('#tip', tip => tip.textContent) || seen.tip;
    }
    await canvas.focus();
    for (const key of ['ArrowRight', 'ArrowUp', 'ArrowUp', 'Equal']) await page.keyboard.press(key);
    seen.painted = await page.evaluate(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return d.some(v => v !== 0); }, canvas);
  }
}
await page.keyboard.press('Escape');
await page.focus('main');
await page.keyboard.press('/');
seen.focused = await page.evaluate(() => document.activeElement.id);
await page.type('#search', word);
await page.keyboard.press('Enter');
seen.found = await page.evaluate(() => location.hash);
seen.tabbed = [];
for (let k = 0; k < 6; k++) { await page.keyboard.press('Tab'); seen.tabbed.push(await page.evaluate(() => document.activeElement.tagName)); }
await browser.close();
console.log(JSON.stringify(seen));
