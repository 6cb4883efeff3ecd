#!/usr/bin/env bash
# SPDX-License-Identifier: MPL-2.0
# `holdfast bench model`, `compare`, `report` as people call them: the same figures each time, a page
# that a browser would take, and one clear sentence when something is wrong.
# shellcheck source=tests/interop/lib.sh
. "$(dirname "$0")/lib.sh"

model() { # OUTPUT ARGUMENTS...
    local out=$1
    shift
    "$build/holdfast" bench model "$@" --span 2G --seconds 1 --memory 256M --output "$out" >"$work/text" 2>"$work/progress"
}
says() { # TEXT COMMAND...: it fails, with TEXT in its one line on standard error
    local text=$1
    shift
    ! "$@" >/dev/null 2>"$work/said" && [[ $(wc -l <"$work/said") -eq 1 ]] && grep -qF -- "$text" "$work/said" ||
        { cat "$work/said"; return 1; }
}
hfb() { "$build/holdfast" bench "$@"; }

try "four flash disks are modelled" model "$work/a.json" "4x sata-ssd" --factor 64 --profile raid5
try "what was done is said meanwhile" grep -q "Holdfast: 4 KiB random read" "$work/progress"
try "the table has both arrays" grep -q "B: classic array, 4x sata-ssd, raid5" "$work/text"
try "once more" model "$work/b.json" "4xsata-ssd" --factor 64 --profile raid5
try "gives the same, to the byte" cmp "$work/a.json" "$work/b.json"
try "a degraded array is modelled" model "$work/c.json" "4x sata-ssd" --factor 64 --profile raid5 --degraded
deny "and is another one" cmp -s "$work/a.json" "$work/c.json"
try "so is one that rebuilds" model "$work/r.json" "4x sata-ssd" --factor 64 --profile raid5 --rebuilding
try "and says how fast" grep -Eq "^rebuild of a disk beside the corners .*[0-9]  *[0-9]" "$work/text"
try "the reordered volume is beside the corners" grep -q '"test": "seq-read-512k-reordered"' "$work/a.json"
try "the disks there are" grep -q "hdd-7200-2tb .*Hitachi" <(hfb model)

hfb compare "$work/a.json" "$work/c.json" >"$work/compare" 2>&1
try "compare shows ratios" grep -Eq "4 KiB random read, depth 16, IOPS .*[0-9]  *[01]\.[0-9][0-9]" "$work/compare"
try "of what was degraded too" grep -q "C: Holdfast, 4x sata-ssd, raid5 over 1x1gbe, degraded" "$work/compare"
hfb compare "$work/a.json" --markdown >"$work/markdown"
try "Markdown is a table" grep -q '^|---|---:|' "$work/markdown"
try "report makes a page" hfb report "$work/a.json" "$work/c.json" --title "<Flash> & so on" --output "$work/page.html"
try "with its title as text" grep -q "<title>&lt;Flash&gt; &amp; so on</title>" "$work/page.html"
deny "which loads nothing" grep -Eqi '(src|href)=|url\(|@import|https?:' "$work/page.html"
try "its tags match" python3 - "$work/page.html" <<'PAGE'
import html.parser, json, sys
class Page(html.parser.HTMLParser):
    open, data, script = [], "", False
    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.data += data
page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert not page.open, page.open
documents = json.loads(page.data)
assert len(documents) == 4 and all(d["format"] == "holdfast-bench" for d in documents)
PAGE

printf '{"format": "holdfast-bench", "version": 1' >"$work/cut.json"
printf '{"format": "holdfast-bench", "version": 9}' >"$work/later.json"
printf '{"format": "tea"}' >"$work/tea.json"
try "a file that is not there" says "none.json" hfb compare "$work/none.json"
try "one that is cut short" says "cut.json, line 1" hfb compare "$work/cut.json"
try "one of a later version" says "later version" hfb report "$work/later.json"
try "one of something else" says "not results of holdfast bench" hfb compare "$work/a.json" "$work/tea.json"
try "no such disk" says "hdd-7200-2tb" hfb model "3x tape"
try "no such link" says "not a link" hfb model sata-ssd --link 3x4gbe
try "degraded or rebuilding" says "an array that rebuilds is degraded" hfb model "4x sata-ssd" --degraded --rebuilding
try "too few disks" says "raid6 needs at least 4 disks" hfb model "3x sata-ssd" --profile raid6
try "nowhere to write to" says "cannot be written" hfb report "$work/a.json" --output "$work/none/page.html"
finish
