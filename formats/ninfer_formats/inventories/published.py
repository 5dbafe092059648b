"""Artifacts that were published, and the frontend files pinned in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ninfer_formats.directory import Identity


@dataclass(frozen=True, slots=True)
class PublishedArtifact:
    """One published file. None stands for a fact that is not known.

    `minimum_runtime` is the oldest revision of the original engine that loads it.
    """

    filename: str
    version: int
    repository: str
    revision: str | None
    bytes: int
    sha256: str | None
    minimum_runtime: str | None
    model_id: str
    weights_id: str
    objects: int
    drafter: str | None = None

    @property
    def identity(self) -> Identity:
        return Identity(self.model_id, self.weights_id)

    @property
    def download_command(self) -> str:
        """The command that fetches exactly this file."""
        pin = f" --revision {self.revision}" if self.revision else ""
        return f"hf download {self.repository} {self.filename}.ninfer{pin}"


_REPO_36 = "neroued/Qwen3.6-27B-NInfer"
_REPO_36_NVFP4 = "neroued/Qwen3.6-27B-nvfp4-NInfer"
_REPO_35B = "neroued/Qwen3.6-35B-A3B-NInfer"
_REPO_38 = "neroued/Qwen3.8-27B-NInfer"
_REPO_38_NVFP4 = "neroued/Qwen3.8-27B-nvfp4-NInfer"
_M36, _M35B, _M38 = "qwen3.6-27b", "qwen3.6-35b-a3b", "qwen3.8-27b"
_INT, _NVFP4 = "groupwise-int", "nvfp4"

# fmt: off
PUBLISHED: tuple[PublishedArtifact, ...] = (
    PublishedArtifact(
        "qwen3_6_27b", 1, _REPO_36, None, 17_495_365_888,
        "74fac75f3a6b7ab7b52e08c36969c7a33a8ba23465910eccd72d195adb497127",
        None, _M36, _INT, 1124,
    ),
    PublishedArtifact(
        "qwen3_6_27b", 2, _REPO_36, "faaa0c14", 17_495_365_888,
        "7b51600ffd10632b9660f56085efdd9b751d79733ad32036a652234b64bebe7b",
        "bd265a36fe99", _M36, _INT, 1124,
    ),
    PublishedArtifact(
        "qwen3_6_27b", 3, _REPO_36, "main", 17_495_538_688,
        "9b610a7d051e7c4dbf89adb604bd269d248b643c8f6c7ef75bdb871af92c6f6b",
        "98dada0e03cb", _M36, _INT, 1124,
    ),
    PublishedArtifact(
        "qwen3_6_27b_nvfp4", 2, _REPO_36_NVFP4, "300373c46a79", 18_324_064_000,
        "bce5f00d066c0f20f1317bf1fdcb458264cf95837c3b1f3fbec163694627893a",
        "a85109c4ef16", _M36, _NVFP4, 1307,
    ),
    PublishedArtifact(
        "qwen3_6_27b_nvfp4", 3, _REPO_36_NVFP4, "main", 18_324_354_820,
        "0448262d15df2ae4fda761540c110bc19e7c3b4f43c0938e4d50474429cda083",
        "98dada0e03cb", _M36, _NVFP4, 1545,
    ),
    PublishedArtifact(
        "qwen3_6_35b_a3b", 1, _REPO_35B, None, 22_783_246_080,
        "5194407dd6d3092b8c2f81ce41e014b50ca0d6f1ba4e5d8c1492b8652bfa267f",
        None, _M35B, _INT, 940, "dflash",
    ),
    PublishedArtifact(
        "qwen3_6_35b_a3b", 2, _REPO_35B, "560f227e", 22_783_246_080,
        "1fb9ea0b5b8561e49d9604115ec89e5d9f2b6f6434e32c37c57fffd480a325d2",
        "bd265a36fe99", _M35B, _INT, 940, "dflash",
    ),
    PublishedArtifact(
        "qwen3_6_35b_a3b", 3, _REPO_35B, "main", 22_790_484_480,
        "3e33297645dc33557751be1a3c407a74ed7c00f34909b5d4e8cfdce91b3dbe84",
        "98dada0e03cb", _M35B, _INT, 940, "dflash",
    ),
    PublishedArtifact(
        "qwen3_8_27b", 2, _REPO_38, "3526913004b1cf552cb57b88d6a5c6f5e4a89a70", 18_210_531_328,
        "eec39564993d6e9c7d5e383382a760f093465c9d163ec9a1bd6b80199514bf3e",
        "52320554b5e7", _M38, _INT, 1124,
    ),
    PublishedArtifact(
        "qwen3_8_27b", 2, _REPO_38, "dc370fb6295ae8b786e1af4f90d7142a16255c35", 20_437_336_576,
        "0634abb07024221de141456cf04a42ab74b18bc38e1b781c6eb2e062a467eec3",
        None, _M38, _INT, 1190, "dflash2",
    ),
    PublishedArtifact(
        "qwen3_8_27b", 3, _REPO_38, "51630a0c", 20_437_520_896,
        "e91dbf53b99ffd2dc2d83f51fb3dfa0ae0b193f6cf9b439050b8a7e5769c6a5c",
        "04350ba94c20", _M38, _INT, 1190, "dflash2",
    ),
    PublishedArtifact(
        "qwen3_8_27b", 3, _REPO_38, "main", 20_437_521_664,
        "81f924d440c27261d820c19a9f8d45794c5aee410f8a68bd358133fa8c0375da",
        "98dada0e03cb", _M38, _INT, 1190, "dflash2",
    ),
    # The sizes of these two follow from the inventory; no published file was measured.
    PublishedArtifact(
        "qwen3_8_27b_nvfp4", 2, _REPO_38_NVFP4, "204e3d92c30d9d05f3300d2f52e443ad1edf6ddf",
        21_492_695_040, "bb3360522a06e136e0367f5703414d26272b7285c8a6ab6194135c17dbd81b32",
        None, _M38, _NVFP4, 1124,
    ),
    PublishedArtifact(
        "qwen3_8_27b_nvfp4", 2, _REPO_38_NVFP4, None, 23_719_496_192,
        None, None, _M38, _NVFP4, 1190, "dflash2",
    ),
    PublishedArtifact(
        "qwen3_8_27b_nvfp4", 3, _REPO_38_NVFP4, "main", 23_719_715_844,
        "74d2c57145e6ff11d1d2faa79594477f9bc903a611af1fb20218189fbbb77d82",
        "98dada0e03cb", _M38, _NVFP4, 1246, "dflash2",
    ),
)
# fmt: on

# SHA-256 of the JSON directory of the two published version 1 files -> model_id.
V1_DIRECTORIES: Mapping[str, str] = MappingProxyType(
    {
        "df352a3e3b8555f15fd00d143be213b9e5ff6fb910a1c2390f0785f9a1e2d386": _M36,
        "0155278f7e050a4a5c39a697557ea9e2532d44dfc054fd41b496f8b37966732e": _M35B,
    }
)

_SAME_IN_BOTH = {
    "generation_config.json": "e70c136c1b78ddc1fb0905bac8e733a4dc448d4f852a5dd75143fffc70be550e",
    "preprocessor_config.json": "27225450ac9c6529872ee1924fcb0962ff5634834f817040f444118116f4e516",
    "video_preprocessor_config.json": (
        "7768af27c1fafa9cc9011c1dc20067e03f8915e03b63504550e11d5066986d13"
    ),
}

# Role -> SHA-256 of the official frontend files, by release. The version 2 converters refuse
# others; no engine checks them.
PINNED_RESOURCES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "qwen3.6": MappingProxyType(
            {
                "tokenizer.json": (
                    "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42"
                ),
                "tokenizer_config.json": (
                    "5186f0defcd7f232382c7f0aebcd2252d073bb921ab240e407b7ae8745d2b29b"
                ),
                "chat_template.jinja": (
                    "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259"
                ),
                **_SAME_IN_BOTH,
            }
        ),
        "qwen3.8": MappingProxyType(
            {
                "tokenizer.json": (
                    "0997f410c57a1f4e53b09e4be8f4a172d90edd9564368fb0847030937229b9f3"
                ),
                "tokenizer_config.json": (
                    "b11349aafa7cdc6a320767cf7ceb29ed82f7eda5d65e8e0819e76f0ce947bf27"
                ),
                "chat_template.jinja": (
                    "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041"
                ),
                **_SAME_IN_BOTH,
            }
        ),
    }
)

# Bytes of the six frontend files of qwen3.6, in file order. They were never published one by one;
# they are the sizes for which both version 1 directories have their published SHA-256.
QWEN3_6_RESOURCE_BYTES = (12_807_982, 16_718, 7_764, 202, 390, 385)
# Bytes of all six files together, by release, in version 1/2 files.
LEGACY_RESOURCE_BYTES = MappingProxyType({"qwen3.6": 12_833_441, "qwen3.8": 12_837_177})


def same_size_as(
    bytes: int,
    version: int | None = None,
    model_id: str | None = None,
    weights_id: str | None = None,
) -> tuple[PublishedArtifact, ...]:
    """Return the published artifacts of exactly this size, narrowed by what else is known.

    A match of size and identity is not proof: only the SHA-256 of the whole file is.
    """
    return tuple(
        artifact
        for artifact in PUBLISHED
        if artifact.bytes == bytes
        and version in (None, artifact.version)
        and model_id in (None, artifact.model_id)
        and weights_id in (None, artifact.weights_id)
    )


def published_v1(directory_sha256: str) -> PublishedArtifact | None:
    """Return the published version 1 artifact whose JSON directory has this SHA-256 (hex)."""
    model_id = V1_DIRECTORIES.get(directory_sha256)
    for artifact in PUBLISHED:
        if artifact.version == 1 and artifact.model_id == model_id:
            return artifact
    return None


def published_versions(
    identity: Identity, version: int | None = None
) -> tuple[PublishedArtifact, ...]:
    """Return what was published under an identity, oldest container version first."""
    return tuple(
        artifact
        for artifact in PUBLISHED
        if artifact.identity == identity and version in (None, artifact.version)
    )


def pinned_resources(model_id: str) -> Mapping[str, str] | None:
    """Return role -> SHA-256 of the official frontend files of a model, None if not pinned."""
    return PINNED_RESOURCES.get(model_id.partition("-")[0])
