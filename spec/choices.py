"""The two choices that are words - how children are taken, how the target judges - and which go together."""

from typing import Literal

from spec.errors import refuse

Children = Literal["top", "iid", "distinct"]
"""How a node's children are taken from its law: the best ones (nothing is drawn, and q is one-hot), independent
draws, or draws without replacement."""
CHILDREN: tuple[Children, ...] = ("top", "iid", "distinct")

Rule = Literal["resample", "match", "traversal"]
"""How the target judges a draft: by rejection and the residual, by its own draw, or from the leaves up."""
RULES: tuple[Rule, ...] = ("resample", "match", "traversal")


def check_rule(rule: Rule, children: Children, *, rule_field: str = "rule") -> None:
    """Refuse with SpecError a word that is none, and a rule that would be wrong or pointless for such children."""
    if rule not in RULES:
        raise refuse(rule_field, rule, f"one of {', '.join(map(repr, RULES))}")
    if children not in CHILDREN:
        raise refuse("children", children, f"one of {', '.join(map(repr, CHILDREN))}")
    if rule == "match" and children != "top":
        raise refuse(
            rule_field, rule, f"'resample' or 'traversal' where children is {children!r}: 'match' is for 'top'"
        )
    if rule == "traversal" and children == "top":
        raise refuse(rule_field, rule, "'match' or 'resample' where children is 'top': it could accept no more")
