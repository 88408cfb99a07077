"""Compiled kernels: files of another build, features that the CPU lacks, symbols that nobody should see."""

from mutations.base import Break

__all__ = ["BREAKS"]

_ENGINE = "crypto/securevfl_crypto/engine/"
_AHEAD = "tests/engine/test_ahead.py::"
_PRODUCTS52 = "tests/engine/test_products52.py::"

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
        name="a bound on limbs of 51 bits that is too small by one",
        file=_ENGINE + "field51.py",
        old="_NARROW = _HALF + (1 << 7)",
        new="_NARROW = _HALF + 82",
        tests=("tests/engine/test_doubles.py::test_one_more_than_a_limb_may_be_is_refused",),
    ),
    Break(
        name="products in doubles under the caller's rounding",
        file=_ENGINE + "doubles.py",
        old='        self.f.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {default})")\n',
        new="",
        tests=("tests/engine/test_doubles.py::test_the_callers_rounding_neither_matters_nor_changes",),
    ),
    Break(
        name="a caller whose rounding is not given back",
        file=_ENGINE + "doubles.py",
        old='        self.f.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {before})")\n',
        new="",
        tests=("tests/engine/test_doubles.py::test_the_callers_rounding_neither_matters_nor_changes",),
    ),
    Break(
        name="bits of a double less a wrong bias",
        file=_ENGINE + "doubles.py",
        old="Vec(self._bits_of(less), -half, half, offset=_bits(_BIAS)),",
        new="Vec(self._bits_of(less), -half, half, offset=_bits(_BIAS) + 1),",
        tests=("tests/engine/test_doubles.py::test_a_product_is_exact_up_to_its_bounds",),
    ),
    Break(
        name="a sum of products that may leave its binade by one",
        file=_ENGINE + "doubles.py",
        old="if not first <= low <= top <= 2 * first:",
        new="if not first <= low <= top <= 2 * first + unit:",
        tests=("tests/engine/test_doubles.py::test_what_could_be_inexact_is_refused",),
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
        file=_ENGINE + "products52.py",
        old="_MODE = 0x7FBF",
        new="_MODE = 0x1FBF",
        tests=(_PRODUCTS52 + "test_halves_are_exact_at_edges_in_every_mode",),
    ),
    Break(
        name="a caller's rounding mode that is not given back",
        file=_ENGINE + "products52.py",
        old="  call void @llvm.x86.sse.ldmxcsr(ptr %before)\n  ret void",
        new="  ret void",
        tests=(_PRODUCTS52 + "test_kernels_set_their_mode_and_restore_the_callers",),
    ),
    Break(
        name="a kernel that computes in its caller's rounding mode",
        file=_ENGINE + "compiled_long.py",
        old="rounded = limbs.by_doubles and name in _CALLED",
        new="rounded = limbs.by_doubles and name in _CALLED[1:]",
        tests=(_PRODUCTS52 + "test_kernels_set_their_mode_and_restore_the_callers",),
    ),
    Break(
        name="a bias that is counted once too little",
        file=_ENGINE + "limbs.py",
        old="(gone + 1) * high_bias(self._SCALE)",
        new="gone * high_bias(self._SCALE)",
        tests=("tests/engine/test_columns.py::test_all_kernels_can_be_emitted",),
    ),
    Break(
        name="an upper half with the bias of a lower one",
        file=_ENGINE + "products52.py",
        old="Vec(words[0], 0, most >> 52, offset=high)",
        new="Vec(words[0], 0, most >> 52, offset=low)",
        tests=(_PRODUCTS52 + "test_halves_are_exact_at_edges_in_every_mode",),
    ),
    Break(
        name="biases that are stored",
        file=_ENGINE + "emitter.py",
        old="            if not value.plain:",
        new="            if value.double:",
        tests=(_PRODUCTS52 + "test_what_is_no_factor_and_what_has_a_bias_is_refused",),
    ),
    Break(
        name="a factor of 53 bits",
        file=_ENGINE + "products52.py",
        old="if max(tops) > MASK52:",
        new="if max(tops) > 2 * MASK52:",
        tests=(_PRODUCTS52 + "test_what_is_no_factor_and_what_has_a_bias_is_refused",),
    ),
    Break(
        name="a carry that is one too small where the column was not 0",
        file=_ENGINE + "reductions.py",
        old="f.add(window[i], f.constant(limbs.top))",
        new="f.add(window[i], f.constant(limbs.top - 1))",
        tests=("tests/crypto/test_modular_squares.py::test_halves_up_to_their_bound",),
    ),
    Break(
        name="the library of another architecture in the place of this machine's",
        file=_ENGINE + "build.py",
        old="paths = paths_for(machine)\n",
        new="paths = paths_for(platform.machine())\n",
        tests=(
            "tests/engine/test_emulated.py::test_a_library_of_another_architecture_is_built_into_a_folder_of_its_own",
        ),
    ),
    Break(
        name="traces of no blocks",
        file="tools/emulated/traces.py",
        old="_BLOCK.findall(log.read_bytes())",
        new="_BLOCK.findall(log.read_bytes()[:0])",
        tests=("tests/engine/test_traces.py",),
    ),
    Break(
        name="secrets that memcheck is not told of",
        file="tools/emulated/machine.py",
        old="_SECRET if name in self._secrets else _ARRAY",
        new="_ARRAY",
        tests=("tests/engine/test_traces.py",),
    ),
)
