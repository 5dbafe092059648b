"""Drop and add optional groups, and replace the chat template."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ninfer_formats.directory import A16_ONLY, Binding, Part, Resource, StoredObject, Use
from ninfer_formats.errors import ArtifactError, UsageError
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.inventories.geometry import TextGeometry
from ninfer_formats.write_plan import make_resource, move_object
from ninfer_tools.migrate.draft import Content, Draft

OPTIONAL_GROUPS = ("dflash2", "dflash", "vision", "mtp")
TEMPLATE = "chat_template.jinja"


def drop_group(draft: Draft, group: str) -> Draft:
    """Return the draft without a component, its parameters, uses, and objects only it needed."""
    if group not in OPTIONAL_GROUPS:
        raise UsageError("not an optional group", got=group, want=", ".join(OPTIONAL_GROUPS))
    if group not in draft.components and not any(_in_group(n, group) for n in draft.objects):
        raise UsageError(f"artifact has no {group}", got=f"--drop {group}")
    components = {name: item for name, item in draft.components.items() if name != group}
    bindings = {name: item for name, item in draft.bindings.items() if not _in_group(name, group)}
    uses = tuple(
        use
        for use in draft.uses
        if not _in_group(use.parameter, group) and not _in_group(use.input, group)
    )
    after = draft.with_(components=components, bindings=bindings, uses=uses)
    before, still = _referenced(draft), _referenced(after)
    # A legacy object that belongs to the group but not to its inventory goes by its name.
    gone = {
        name
        for name in draft.objects
        if name not in still and (name in before or _in_group(name, group))
    }
    return after.with_(
        objects={name: item for name, item in draft.objects.items() if name not in gone},
        contents={name: item for name, item in draft.contents.items() if name not in gone},
    )


def add_group(draft: Draft, other: Draft, group: str) -> Draft:
    """Return the draft with a component of `other`, a draft of the same text model."""
    if group not in OPTIONAL_GROUPS:
        raise UsageError("not an optional group", got=group, want=", ".join(OPTIONAL_GROUPS))
    if group in draft.components:
        raise UsageError(f"artifact already has {group}", remedy=f"add --drop {group}")
    if group not in other.components:
        raise UsageError(f"the other artifact has no {group}", got=f"--add {group}")
    _check_same_model(draft, other)
    names = _choose_names(draft, other, group)
    components = dict(draft.components)
    component = other.components[group]
    roles = {role: names[target] for role, target in component.resources.items()}
    components[group] = replace(component, resources=roles)
    objects, contents = _insert_objects(draft, other, names)
    bindings = dict(draft.bindings)
    for name, binding in other.bindings.items():
        if _in_group(name, group):
            bindings[name] = _rename(binding, names)
    added = draft.with_(components=components, objects=objects, contents=contents)
    return added.with_(bindings=bindings, uses=_merge_uses(draft, other, group, names))


def replace_template(draft: Draft, template: bytes) -> Draft:
    """Return the draft with another chat template in the place of the old one."""
    target = draft.components["text"].resources.get(TEMPLATE)
    if target is None:
        raise ArtifactError("artifact has no chat template to replace", where="component text")
    objects = dict(draft.objects)
    objects[target] = move_object(make_resource(target, len(template)), 0)
    return draft.with_(objects=objects, contents={**draft.contents, target: template})


def _in_group(name: str, group: str) -> bool:
    return name.partition("/")[0] == group


def _referenced(draft: Draft) -> set[str]:
    bound = [part.object for binding in draft.bindings.values() for part in binding.parts]
    auxiliary = [
        part.object
        for use in draft.uses
        for binding in use.auxiliaries.values()
        for part in binding.parts
    ]
    roles = [name for item in draft.components.values() for name in item.resources.values()]
    return {*bound, *auxiliary, *roles}


def is_same_model(ours: TextGeometry, theirs: TextGeometry) -> bool:
    """Tell whether two text geometries are of one model. The context limit is a serving matter,
    and writers round rms_norm_eps to float32 or not."""
    if not math.isclose(ours.rms_norm_eps, theirs.rms_norm_eps, rel_tol=1e-6):
        return False
    return ours == replace(
        theirs,
        rms_norm_eps=ours.rms_norm_eps,
        max_position_embeddings=ours.max_position_embeddings,
    )


def _check_same_model(draft: Draft, other: Draft) -> None:
    ours, theirs = (
        geometry_from_components({"text": item.components["text"].config}).text
        for item in (draft, other)
    )
    if not is_same_model(ours, theirs):
        raise ArtifactError(
            "the other artifact is of another model", got=_describe(theirs), want=_describe(ours)
        )


def _describe(text: TextGeometry) -> str:
    layers = f"{text.num_hidden_layers} layers, vocabulary {text.vocab_size}"
    return f"hidden {text.hidden_size}, {layers}"


def _choose_names(draft: Draft, other: Draft, group: str) -> dict[str, str]:
    """Return the new object id of every object that the group needs, unique in the draft."""
    needed = _referenced(_only_group(other, group))
    names: dict[str, str] = {}
    for name in other.objects:
        if name in needed:
            taken = name in draft.objects
            # Converter ids are numbers without meaning; the group makes them unique and readable.
            names[name] = f"{group}/{name}" if taken else name
    clash = next((name for name in names.values() if name in draft.objects), None)
    if clash is not None:
        raise ArtifactError("object id is taken in both artifacts", where=f"object {clash}")
    return names


def _only_group(draft: Draft, group: str) -> Draft:
    return draft.with_(
        components={group: draft.components[group]},
        bindings={n: item for n, item in draft.bindings.items() if _in_group(n, group)},
        uses=tuple(use for use in draft.uses if _in_group(use.parameter, group)),
    )


def _insert_objects(
    draft: Draft, other: Draft, names: Mapping[str, str]
) -> tuple[dict[str, StoredObject], dict[str, Content]]:
    """Return objects and contents with the added ones: resources first, tensors last."""
    added = {new: move_object(other.objects[old], 0, new) for old, new in names.items()}
    merged = {**draft.objects, **added}
    resources = {name: item for name, item in merged.items() if isinstance(item, Resource)}
    ordered = {**resources, **merged} if _resources_lead(draft) else merged
    contents = {**draft.contents, **{new: other.contents[old] for old, new in names.items()}}
    return ordered, contents


def _resources_lead(draft: Draft) -> bool:
    kinds = [isinstance(item, Resource) for item in draft.objects.values()]
    return kinds == sorted(kinds, reverse=True)


def _rename(binding: Binding, names: Mapping[str, str]) -> Binding:
    parts = tuple(Part(names[part.object], part.begin, part.end) for part in binding.parts)
    return Binding(parts, binding.whole)


def _merge_uses(
    draft: Draft, other: Draft, group: str, names: Mapping[str, str]
) -> tuple[Use, ...]:
    """Return the uses with those of the group's parameters, and with the shared heads used at
    the group's final hidden state on the terms that they have in this artifact."""
    added = []
    terms = {use.parameter: use for use in reversed(draft.uses)}
    for use in other.uses:
        if _in_group(use.parameter, group):
            roles = {role: _rename(item, names) for role, item in use.auxiliaries.items()}
            added.append(replace(use, auxiliaries=roles))
        elif _in_group(use.input, group) and use.parameter in draft.bindings:
            same = terms.get(use.parameter, Use(use.parameter, use.input, A16_ONLY))
            added.append(replace(same, input=use.input))
    return (*draft.uses, *added)
