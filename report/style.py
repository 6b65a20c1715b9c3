"""The one style sheet of every report, light and dark, readable on a phone."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2430;--soft:#667085;--line:#e4e7ec;--panel:#f7f8fa;--ink:#3b6fd4;
--good:#1a7f4b;--bad:#c0362c;--warn:#a15c07;--info:#3b6fd4;--warm:#d9822b}
@media(prefers-color-scheme:dark){:root{--bg:#12161c;--fg:#e6e9ee;--soft:#98a2b3;--line:#2a313c;--panel:#1a2029;
--ink:#7ea6f4;--good:#4cc38a;--bad:#ff8a80;--warn:#f0b35a;--info:#7ea6f4}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 60px}
header{border-bottom:1px solid var(--line);padding-bottom:14px}
.head{display:flex;flex-wrap:wrap;gap:10px;align-items:center}
h1{font-size:24px;line-height:1.2;margin:0;font-weight:650}
h2{font-size:17px;margin:30px 0 6px;font-weight:650}
.subtitle,.note{color:var(--soft);margin:4px 0 10px}
.figures{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0 4px}
.figure{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 16px;min-width:110px}
.figure b{display:block;overflow-wrap:anywhere;font-size:20px;font-weight:650;font-variant-numeric:tabular-nums}
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
.tight th,.tight td{padding-left:5px;padding-right:5px}.tight th{vertical-align:bottom}.tight th.n{white-space:normal}
.tight .soft{font-size:11px;line-height:1.35}
.sort{all:unset;cursor:pointer}.sort:focus-visible{outline:2px solid var(--ink);outline-offset:2px;border-radius:3px}
th[aria-sort=ascending] .sort:after{content:" ↑"}th[aria-sort=descending] .sort:after{content:" ↓"}
.slider{display:flex;gap:12px;align-items:center;max-width:460px}.slider input{flex:1;accent-color:var(--ink)}
.slider output{font-weight:650;font-variant-numeric:tabular-nums;min-width:4ch}
.beside{display:flex;flex-wrap:wrap;gap:8px 32px;align-items:flex-start}.beside>div{flex:1 1 340px;min-width:0}
.curves .mark{stroke:var(--fg);stroke-width:1.5}
.forest .f0{fill:#3b6fd4}.forest .f1{fill:#d9822b}
a{color:var(--ink)}
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
.curves polyline,.curves circle{fill:none;stroke-width:2}
.curves .grid{stroke:var(--line)}.curves .diagonal{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 4}
.s0{stroke:#3b6fd4}.s1{stroke:#d9822b}.s2{stroke:#1a9a6c}.s3{stroke:#a05bd0}.s4{stroke:#c0362c}.s5{stroke:#7a8699}
.metrics{display:flex;flex-wrap:wrap;gap:0 16px}.metric{margin:0}.metric h3{font-size:13px;margin:14px 0 0}
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
.many>.anomaly{content-visibility:auto;contain-intrinsic-size:auto 200px}
[hidden]{display:none!important}
.scroll{max-width:100%}
.scroll:focus-visible,summary:focus-visible,input:focus-visible,select:focus-visible{outline:2px solid var(--ink);
outline-offset:2px;border-radius:4px}
th[scope=row]{color:var(--fg);border-bottom:1px solid var(--line);font-size:13px}
tr:last-child th[scope=row]{border-bottom:0}
h3,.subtitle,.note,.anomaly p,td code{overflow-wrap:anywhere}
td{overflow-wrap:break-word;max-width:640px}
.controls{display:flex;flex-wrap:wrap;gap:10px 14px;align-items:flex-end;margin:18px 0 6px;padding:12px 14px;
background:var(--panel);border:1px solid var(--line);border-radius:10px}
.field{display:flex;flex-direction:column;gap:3px;min-width:120px}
.field>span,legend{font-size:12px;color:var(--soft);padding:0}
.search{flex:1 1 200px}
input,select{font:inherit;color:inherit}
input[type=search],select{background:var(--bg);border:1px solid var(--line);border-radius:6px;padding:5px 8px;
height:34px;width:100%}
.tick{display:inline-flex;align-items:center;gap:6px;min-height:34px;max-width:100%;cursor:pointer}
.tick span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;max-width:340px}
.tick input{width:16px;height:16px;margin:0;accent-color:var(--ink);flex:none}
.sets{border:0;margin:0;padding:0;flex-basis:100%;min-width:0;display:flex;flex-wrap:wrap;gap:0 18px}
.dot{display:inline-block;width:10px;height:10px;border-radius:3px;background:currentColor;flex:none}
.dot.s0,.strip.s0{background:#3b6fd4}.dot.s1,.strip.s1{background:#d9822b}.dot.s2,.strip.s2{background:#1a9a6c}
.dot.s3,.strip.s3{background:#a05bd0}.dot.s4,.strip.s4{background:#c0362c}.dot.s5,.strip.s5{background:#7a8699}
.area{fill-opacity:.38}.area.odd{fill-opacity:.2}.area:hover{fill-opacity:.8}
.area.s0{fill:#3b6fd4}.area.s1{fill:#d9822b}.area.s2{fill:#1a9a6c}.area.s3{fill:#a05bd0}.area.s4{fill:#c0362c}
.area.s5{fill:#7a8699}
[hidden]{display:none!important}
.card{border:1px solid var(--line);border-radius:10px;padding:12px 16px;margin:10px 0;min-height:120px;
content-visibility:auto;contain-intrinsic-size:auto 180px}
.cardhead{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:center;margin-bottom:4px}
.card h3{margin:0;font-size:15px;font-weight:650;white-space:pre-wrap;unicode-bidi:plaintext}
.card h4,.anomaly h4{margin:12px 0 2px;font-size:12px;color:var(--soft);font-weight:600}
.two{display:grid;grid-template-columns:minmax(0,1fr) 310px;gap:22px;align-items:start}
.chartbox{min-width:0;padding-top:4px}
.chart{width:100%;height:auto;max-width:460px;overflow:visible}
.chart .base{stroke:var(--line)}
.chartbox .edges{max-width:460px}.edges span:only-child{margin:0 auto}
.figuretable td,.figuretable th{padding:4px 8px;font-size:13px}
.figuretable thead th:first-child{padding-left:0}
.figuretable th[scope=row]{padding-left:0;white-space:normal}
.figuretable thead th{font-size:11.5px}
.figuretable:not(.tall){table-layout:fixed;min-width:590px}
.figuretable.loose:not(.tall){table-layout:auto}
.figuretable:not(.tall):not(.plainrow) th:first-child{width:15%}
.figuretable.plainrow{min-width:0}.plainrow th{width:13%}.plainrow th:nth-child(4){width:18%}
.plainrow th:nth-child(n+5){width:21%}
@media(max-width:1040px){.two{grid-template-columns:minmax(0,1fr)}}
.stack td:nth-child(3){min-width:110px}
.plainrow td:first-child,.plainrow th:first-child{padding-left:0}
.plainrow td,.plainrow th{text-align:left}
.legend{display:flex;flex-wrap:wrap;gap:2px 12px;font-size:12px;color:var(--soft);margin-bottom:4px}
.key{display:inline-flex;align-items:center;gap:6px;font-weight:600;overflow-wrap:anywhere}
.cardnote{color:var(--soft);font-size:12px;margin:4px 0}
.card details{border:0;padding:0;margin:6px 0 0}
.card summary{font-weight:500;font-size:12px;color:var(--ink);width:max-content}
.hbar{display:grid;grid-template-columns:minmax(0,max(110px,var(--label,0px))) minmax(0,1fr) minmax(58px,var(--n,0px));
gap:10px;align-items:center;font-size:12px;padding:2px 0}
.hbar .label{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.hbar .strips{display:flex;flex-direction:column;gap:2px}
.hbar .strip{height:8px;border-radius:2px;min-width:1px}
.hbar .n{text-align:right;font-variant-numeric:tabular-nums;color:var(--soft);display:flex;flex-direction:column;
line-height:1.2}
.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 14px;margin:8px 0}
.facts dt{color:var(--soft);font-size:12px;line-height:21px}.facts dd{margin:0;overflow-wrap:anywhere}
.tags{display:flex;flex-wrap:wrap;gap:5px 8px;align-items:center}
.tags .badge,.card .badge{max-width:100%;white-space:normal;overflow-wrap:anywhere}
.tags .badge{border-radius:10px}
.heat td{padding:0;width:44px;min-width:44px;height:30px;text-align:center;vertical-align:middle;font-size:11px;
font-variant-numeric:tabular-nums;border:1px solid var(--bg)}
.heat{width:auto}
.heat th[scope=col]{padding:4px 0;vertical-align:bottom;height:110px;border:0}
.heat th[scope=col] span{writing-mode:vertical-rl;transform:rotate(180deg);font-weight:500;
display:inline-block;margin-left:13px}
.heat th[scope=row]{border:0;text-align:right;font-size:12px;font-weight:500}
@media(max-width:720px){.two{grid-template-columns:minmax(0,1fr);gap:10px}main{padding:16px 12px 40px}td,th{padding:6px}
.card,.anomaly{padding:10px 12px}
.stack,.stack tbody,.stack tr,.stack td{display:block;width:100%;max-width:none}.stack thead{display:none}
.stack tr{border:1px solid var(--line);border-radius:10px;padding:8px 12px;margin:10px 0}
.stack td{border:0;padding:2px 0;text-align:left}.stack td:empty{display:none}
.stack td:not(:first-child){padding-left:92px;position:relative}
.stack td:not(:first-child):before{content:attr(data-label);position:absolute;left:0;width:84px;color:var(--soft);
font-size:12px}
.field{flex:1 1 130px}.figures{display:grid;
grid-template-columns:repeat(auto-fill,minmax(120px,1fr));gap:8px}.figure{padding:8px 12px;min-width:0}
.curves{margin-right:0;max-width:100%}.curves svg{max-width:100%;height:auto}
.figuretable.tall{width:100%}}
@media print{details{break-inside:avoid}}
""".strip()
