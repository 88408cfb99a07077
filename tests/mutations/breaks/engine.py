"""Compiled kernels: files of another build, features that the CPU lacks, symbols that nobody should see."""

from mutations.base import Break

__all__ = ["BREAKS"]

_ENGINE = "crypto/securevfl_crypto/engine/"
_AHEAD = "tests/crypto/test_ahead.py::"
_DOUBLES = "tests/crypto/test_doubles.py::"

BREAKS = (
    Break(
        name="a library whose hash nobody compares",
        file=_ENGINE + "library.py",
        old="if digest != library.sha256:",
        new="if not digest:",
        tests=(_AHEAD + "test_one_flipped_byte_is_an_error_and_no_warning",),
    ),
    Break(
        name="a wrong hash that is only a warning",
        file=_ENGINE + "paths.py",
        old="        except WrongLibraryError:\n            raise\n",
        new="",
        tests=(_AHEAD + "test_one_flipped_byte_is_an_error_and_no_warning",),
    ),
    Break(
        name="a library of another class",
        file=_ENGINE + "library.py",
        old="if one.file != library_file(one.cpu_class):",
        new="if not one.file:",
        tests=(_AHEAD + "test_what_is_no_manifest_is_an_error",),
    ),
    Break(
        name="a path on a CPU that lacks one of its features",
        file=_ENGINE + "cpu.py",
        old="missing = sorted(set(path.needs) - host_features())",
        new="missing = sorted(set(path.needs[:5]) - host_features())",
        tests=(_AHEAD + "test_a_path_needs_every_feature_that_its_compiler_may_use",),
    ),
    Break(
        name="features that only some cores have",
        file=_ENGINE + "cpu.py",
        old="frozenset.intersection(*cores)",
        new="frozenset.union(*cores)",
        tests=("tests/crypto/test_engine_choice.py::test_features_are_those_that_all_cores_list",),
    ),
    Break(
        name="a warning for each group of kernels",
        file=_ENGINE + "paths.py",
        old="    _warned = True\n",
        new="    _warned = False\n",
        tests=(_AHEAD + "test_missing_libraries_are_one_warning_and_libraries_compute",),
    ),
    Break(
        name="inner functions that a library exports",
        file=_ENGINE + "llvm.py",
        old='function.visibility = "hidden"',
        new='function.visibility = "default"',
        tests=(_AHEAD + "test_another_build_has_equal_bytes",),
    ),
    Break(
        name="a mask of octets that is shifted by one",
        file=_ENGINE + "octets.py",
        old="llvm.x86.bmi.pext.64(i64 {word}, i64 {mask})",
        new="llvm.x86.bmi.pext.64(i64 {word}, i64 {self.f.emit_scalar(f'shl i64 {mask}, 8')})",
        tests=("tests/crypto/test_ring_paths.py::test_both_kernels_of_residues_agree_with_numpy",),
    ),
    Break(
        name="pext where it is microcode",
        file=_ENGINE + "cpu.py",
        old="int(family) < _ZEN3",
        new="int(family) < _ZEN3 - 2",
        tests=("tests/crypto/test_engine_choice.py::test_amds_cpus_before_zen_3_have_a_slow_pext",),
    ),
    Break(
        name="padding without room for the length, which the self-test does not reach",
        file=_ENGINE + "vector.py",
        old="if gap >= 17 else",
        new="if gap >= 16 else",
        tests=("tests/crypto/test_vectors.py::test_every_compiled_path_agrees_with_every_vector",),
    ),
    Break(
        name="products of doubles rounded to nearest",
        file=_ENGINE + "doubles.py",
        old="_MODE = 0x7FBF",
        new="_MODE = 0x1FBF",
        tests=(_DOUBLES + "test_halves_are_exact_at_edges_in_every_mode",),
    ),
    Break(
        name="a caller's rounding mode that is not given back",
        file=_ENGINE + "doubles.py",
        old="  call void @llvm.x86.sse.ldmxcsr(ptr %before)\n  ret void",
        new="  ret void",
        tests=(_DOUBLES + "test_kernels_set_their_mode_and_restore_the_callers",),
    ),
    Break(
        name="a kernel that computes in its caller's rounding mode",
        file=_ENGINE + "compiled_long.py",
        old="rounded = limbs.by_doubles and name in _CALLED",
        new="rounded = limbs.by_doubles and name in _CALLED[1:]",
        tests=(_DOUBLES + "test_kernels_set_their_mode_and_restore_the_callers",),
    ),
    Break(
        name="a bias that is counted once too little",
        file=_ENGINE + "limbs.py",
        old="(gone + 1) * high_bias(self._SCALE)",
        new="gone * high_bias(self._SCALE)",
        tests=("tests/crypto/test_columns.py::test_all_kernels_can_be_emitted",),
    ),
    Break(
        name="an upper half with the bias of a lower one",
        file=_ENGINE + "doubles.py",
        old="Vec(words[0], 0, most >> 52, bias=high)",
        new="Vec(words[0], 0, most >> 52, bias=low)",
        tests=(_DOUBLES + "test_halves_are_exact_at_edges_in_every_mode",),
    ),
    Break(
        name="biases that are stored",
        file=_ENGINE + "emitter.py",
        old="if any(value.bias for value in values):",
        new="if any(value.bias < 0 for value in values):",
        tests=(_DOUBLES + "test_what_is_no_factor_and_what_has_a_bias_is_refused",),
    ),
    Break(
        name="a factor of 53 bits",
        file=_ENGINE + "doubles.py",
        old="if max(tops) > MASK52:",
        new="if max(tops) > 2 * MASK52:",
        tests=(_DOUBLES + "test_what_is_no_factor_and_what_has_a_bias_is_refused",),
    ),
    Break(
        name="a carry that is one too small where the column was not 0",
        file=_ENGINE + "reductions.py",
        old="f.add(window[i], f.constant(limbs.top))",
        new="f.add(window[i], f.constant(limbs.top - 1))",
        tests=("tests/crypto/test_modular_squares.py::test_halves_up_to_their_bound",),
    ),
)
