"""The one style sheet of every report, light and dark, readable on a phone."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2430;--soft:#667085;--line:#e4e7ec;--panel:#f7f8fa;--ink:#3b6fd4;
--good:#1a7f4b;--bad:#c0362c;--warn:#a15c07;--info:#3b6fd4}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6e9ee;--soft:#98a2b3;--line:#2a313c;--panel:#1a2029;
--ink:#7ea6f4;--good:#4cc38a;--bad:#ff8a80;--warn:#f0b35a;--info:#7ea6f4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
header{border-bottom:1px solid var(--line);padding-bottom:14px}
.head{display:flex;flex-wrap:wrap;gap:10px;align-items:center}
h1{font-size:24px;line-height:1.2;margin:0;font-weight:650}
h2{font-size:17px;margin:30px 0 6px;font-weight:650}
.subtitle,.note{color:var(--soft);margin:4px 0 10px}
.figures{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0 4px}
.figure{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 16px;min-width:110px}
.figure b{display:block;font-size:20px;font-weight:650;font-variant-numeric:tabular-nums}
.figure span{color:var(--soft);font-size:12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th{font-size:12px;font-weight:600;color:var(--soft);text-align:left;border-bottom:1px solid var(--line);
padding:6px 10px;white-space:nowrap}
td{padding:8px 10px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code,.mono{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.soft{color:var(--soft);font-size:12px}
.badge{display:inline-block;border:1px solid currentColor;border-radius:99px;padding:0 8px;font-size:12px;
line-height:19px;white-space:nowrap;color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.info{color:var(--info)}
svg{display:block}
svg text{fill:var(--soft);font-size:11px}
.bar{display:inline-block;vertical-align:middle}
.bar .track{fill:var(--line)}.bar .fill,.histogram .fill{fill:var(--ink)}
.bar.good .fill{fill:var(--good)}.bar.bad .fill{fill:var(--bad)}.bar.warn .fill{fill:var(--warn)}
.bars{display:grid;grid-template-columns:minmax(60px,150px) 120px auto;gap:8px;align-items:center;line-height:1.35;
font-size:12px;justify-content:start}
.bars .label{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.bars .n{font-variant-numeric:tabular-nums;color:var(--soft)}
.histogram line{stroke:var(--line)}
.histogram .hover{fill:transparent}
.histogram g:hover .fill{opacity:.65}
.edges{display:flex;justify-content:space-between;color:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
.curves{display:inline-block;margin:8px 16px 8px 0}
.curves polyline{fill:none;stroke-width:2}
.curves .grid{stroke:var(--line)}.curves .diagonal{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 4}
.s0{stroke:#3b6fd4}.s1{stroke:#d9822b}.s2{stroke:#1a9a6c}.s3{stroke:#a05bd0}.s4{stroke:#c0362c}.s5{stroke:#7a8699}
figcaption{font-size:12px}figcaption span{margin-right:12px;font-weight:600}
.k0{color:#3b6fd4}.k1{color:#d9822b}.k2{color:#1a9a6c}.k3{color:#a05bd0}.k4{color:#c0362c}.k5{color:#7a8699}
details{border:1px solid var(--line);border-radius:8px;padding:8px 14px;margin:10px 0}
summary{cursor:pointer;font-weight:600}
.anomaly{border:1px solid var(--line);border-left:4px solid var(--soft);border-radius:8px;padding:10px 16px;
margin:12px 0}
.anomaly.ERROR{border-left-color:var(--bad)}.anomaly.WARNING{border-left-color:var(--warn)}
.anomaly.INFO{border-left-color:var(--info)}
.anomaly h3{margin:0 0 4px;font-size:15px;font-weight:650}
.anomaly p{margin:4px 0}
@media(max-width:600px){main{padding:16px 12px 40px}td,th{padding:6px}}
@media print{details{break-inside:avoid}}
""".strip()
