"""The few fixed words of the answers, in English and Simplified Chinese."""

from __future__ import annotations

from collections.abc import Mapping

WORDS: Mapping[str, tuple[str, str]] = {
    "advice_for": ("Advice for", "建议对象"),
    "report_for": ("Check of", "检查对象"),
    "estimate_for": ("Estimate for", "估算对象"),
    "plan_for": ("Smoke run of", "冒烟运行"),
    "plan_takes": (
        "{0} GPUs on {1} node(s), {2} iterations, at most {3} minutes ({4} GPU-minutes). Nothing has been started.",
        "{1} 个节点共 {0} 张 GPU，{2} 次迭代，至多 {3} 分钟（{4} GPU 分钟）。尚未启动任何任务。",
    ),
    "plan_command": ("Command, on each node", "命令（每个节点执行）"),
    "preconditions": ("Before it: check each", "前提（逐项确认）"),
    "reads": ("Reads", "读取"),
    "writes": ("Writes", "写入"),
    "isolation": ("Isolation", "隔离"),
    "success": ("It has succeeded when", "成功标准"),
    "stop": ("To stop it", "停止方法"),
    "clean_up": ("To clean up", "清理"),
    "question": ("Confirm", "确认"),
    "on": ("on", "运行于"),
    "judged_at": ("Judged at Megatron Bridge {0}; knowledge {1}", "依据 Megatron Bridge {0}；知识库 {1}"),
    "grids": ("Grids, best first", "推荐网格（由优到劣）"),
    "recompute": ("recompute", "重计算"),
    "memory": ("memory/GPU", "显存/GPU"),
    "speed": ("tokens/s/GPU (80 % range)", "tokens/s/GPU（80% 区间）"),
    "step": ("step", "每步"),
    "best": ("The first grid in full", "首选网格详情"),
    "the_grid": ("The grid in full", "网格详情"),
    "component": ("Component", "组成"),
    "bytes_at_peak": ("at the peak", "峰值时"),
    "peak": (
        "Peak on pipeline rank {0}: {1} of {2} ({3}).",
        "峰值位于流水线 rank {0}：{1} / {2}（{3}）。",
    ),
    "peak_no_cap": ("Peak on pipeline rank {0}: {1} ({2}).", "峰值位于流水线 rank {0}：{1}（{2}）。"),
    "time": ("Where a step's time goes", "每步时间构成"),
    "settings": ("Settings (run_recipe.py overrides)", "设置（run_recipe.py 覆盖项）"),
    "decision": (
        "Running them uses {0} GPUs; check the memory figure and your quota, and decide yourself before you launch.",
        "运行将占用 {0} 张 GPU；请先核对显存数字与配额，再自行决定是否启动。",
    ),
    "why": ("Why", "理由"),
    "cautions": ("Cautions", "注意"),
    "request_says": ("What the rules say of this request", "规则对本请求的判断"),
    "rejected": ("Ruled out", "排除统计"),
    "candidates": ("{0} candidates looked at.", "共考察 {0} 个候选。"),
    "by_memory": ("does not fit in memory", "显存放不下"),
    "dominated": ("more recompute than needed", "重计算多于所需"),
    "nearest": ("What the vendor ships for this model", "厂商为该模型提供的配方"),
    "not_judged": ("Not judged (unknown)", "未判断（信息未知）"),
    "give": ("{0} more rules could be judged with: {1}.", "补充以下信息还可判断 {0} 条规则：{1}。"),
    "derivation": ("How it was concluded", "推导过程"),
    "no_fit": ("No grid fits.", "没有可行的网格。"),
    "closest": ("Closest", "最接近的网格"),
    "would_fit": ("What would make it fit", "怎样才能放得下"),
    "verdict_ok": ("OK: no rule is broken", "通过：未违反任何规则"),
    "verdict_warning": ("Warnings", "有警告"),
    "verdict_error": ("Errors: the real code would refuse this", "有错误：真实代码会拒绝该配置"),
    "fix": ("Fix", "修复"),
    "because": ("Because", "原因"),
    "source": ("Source", "出处"),
    "quantities": ("Sizes", "规模"),
    "notes": ("Notes", "说明"),
    "parameters": ("Parameters", "参数量"),
    "seconds": ("s", "秒"),
    "fits": ("fits", "放得下"),
    "tight": ("tight", "紧张"),
    "does_not_fit": ("does not fit", "放不下"),
    "diagnosis_for": ("Diagnosis of", "诊断对象"),
    "diagnosis_found": ("Found", "已找到原因"),
    "diagnosis_suspected": ("Suspected", "可能的原因"),
    "diagnosis_unclear": ("Nothing recognised; more is needed", "未能识别，需要更多信息"),
    "diagnosis_legal": (
        "The configuration breaks no rule, and the words aren't recognised; more is needed",
        "该配置未违反任何规则，描述也未能识别，需要更多信息",
    ),
    "config_says": ("What the rules say of the configuration", "规则对该配置的判断"),
    "diagnosis_clean": ("Nothing wrong found", "未发现问题"),
    "certainty_confirmed": ("confirmed", "确认"),
    "certainty_likely": ("likely", "很可能"),
    "certainty_possible": ("possible", "可能"),
    "aftermath": ("mostly follows from another failure", "多为其他故障的结果"),
    "at_line": ("line {0}", "第 {0} 行"),
    "in_words": ("in words", "描述中"),
    "worded_at": ("Worded so at {0}", "该措辞出现于 {0}"),
    "confirm": ("To confirm", "进一步确认"),
    "unexplained": ("Errors that no rule explains", "没有规则能解释的错误"),
    "alone": ("{0} tokens/s/GPU by itself", "单独改动时 tokens/s/GPU {0}"),
    "changed": ("What changed", "变化"),
    "observed": ("Read from log and words", "从日志与描述中读到"),
    "please_tell": ("To narrow it down, please tell", "请补充以下信息，以便进一步定位"),
    "may_be": ("Likely reason", "可能的根源"),
    "also": ("Also seen", "另外"),
    "criteria": ("Success criteria", "成功标准"),
    "holds": ("holds", "满足"),
    "fails": ("does not hold", "不满足"),
    "untold": ("unknown", "未知"),
    "of_step": ("of a step", "（占每步）"),
}


def word(key: str, lang: str, *args: object) -> str:
    """A fixed text in a language, with ``{0}``.. filled in."""
    text = WORDS[key][lang == "zh"]
    return text.format(*args) if args else text


def size(count: float) -> str:
    """Bytes for people: decimal gigabytes, as GPU makers count, e.g. ``61.3 GB``."""
    if count >= 9.95e8:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:,.0f} MB" if count >= 5e5 else f"{count / 1e3:,.0f} kB"
