"""The compatibility matrix as HTML: a plain table, which a script makes sortable and filterable."""

from __future__ import annotations

from html import escape

from mbridge_advisor.knowledge.model import Rule

from .pages import Pages


def table(pages: Pages) -> str:
    """All rows. Every cell says in words what its colour says."""
    t, base = pages.t, pages.base
    head = [t("entry", "条目"), t("kind", "种类"), *base.revisions]
    rows = []
    for name, row in pages.site.rows.items():
        rule = isinstance(row.owner, Rule)
        title = row.owner.title if isinstance(row.owner, Rule) else base.terms[name].title
        where = f"{'rules' if rule else 'quantities'}/{name}.html"
        cells = "".join(
            f'<td data-label="{tag}" data-state="{c.verdict} {c.tag or ""}">'
            f'<span class="mb-badge mb-{c.tag if c.verdict == "holds" and c.tag else c.verdict}">'
            f"{escape(pages.word(c.tag if c.verdict == 'holds' and c.tag else c.verdict))}</span></td>"
            for tag, c in row.cells.items()
        )
        rows.append(
            f'<tr data-kind="{row.kind}"><th scope="row"><a href="{where}">{name}</a> '
            f'<span class="mb-title">{escape(title[pages.lang])}</span></th>'
            f'<td data-label="{escape(head[1])}">{escape(pages.word(row.kind))}</td>{cells}</tr>'
        )

    def options(values: list[str]) -> str:
        return f'<option value="">{t("all", "全部")}</option>' + "".join(
            f'<option value="{v}">{escape(pages.word(v))}</option>' for v in values
        )

    kinds = list(dict.fromkeys(row.kind for row in pages.site.rows.values()))
    states = ["code_verified", "doc_only", "holds", "changed", "untested", "absent"]
    filters = "".join(
        f'<label>{label} <select data-filter="{key}">{options(values)}</select></label>'
        for key, label, values in (
            ("kind", t("Kind", "种类"), kinds),
            ("state", t("State", "状态"), states),
            ("revision", t("Release", "版本"), list(base.revisions)),
        )
    )
    words = f'<label>{t("Words", "文字")} <input type="search" data-filter="words"></label>'
    label = t("Compatibility matrix", "兼容矩阵")
    return (
        f'<form class="mb-filters" hidden>{filters}{words}<output aria-live="polite"></output></form>'
        f'<div class="mb-scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="mb-table mb-matrix mb-sortable" id="matrix"><thead><tr>'
        + "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
        + f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
