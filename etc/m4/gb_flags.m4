# GB_CHECK_CFLAGS(VARIABLE, FLAG...): appends those flags that the compiler takes without a warning.
AC_DEFUN([GB_CHECK_CFLAGS], [
for gb_flag in $2; do
    AC_MSG_CHECKING([whether $CC takes $gb_flag])
    gb_save_cflags=$CFLAGS
    CFLAGS="$CFLAGS -Werror $gb_flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
        [AC_MSG_RESULT([yes]); $1="[$]$1 $gb_flag"],
        [AC_MSG_RESULT([no])])
    CFLAGS=$gb_save_cflags
done
])

# GB_INSTRUMENT: --enable-sanitizers=LIST, --enable-fuzzers, --enable-coverage, --enable-werror. Fills GB_CFLAGS and
# GB_LDFLAGS, which go to everything that is compiled and linked here, and FUZZ_FLAGS for the fuzz targets.
AC_DEFUN([GB_INSTRUMENT], [
AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST], [build with these: address,undefined or thread or memory])],
    [], [enable_sanitizers=no])
AC_ARG_ENABLE([fuzzers],
    [AS_HELP_STRING([--enable-fuzzers], [build the fuzz targets (needs CC=clang with its runtime)])],
    [], [enable_fuzzers=no])
AC_ARG_ENABLE([coverage], [AS_HELP_STRING([--enable-coverage], [build for gcov; see make coverage])],
    [], [enable_coverage=no])
AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [compiler warnings are errors])],
    [], [enable_werror=no])

GB_CHECK_CFLAGS([GB_CFLAGS], [-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla])
AS_IF([test "x$enable_werror" = xyes], [GB_CFLAGS="$GB_CFLAGS -Werror"])

AS_IF([test "x$enable_sanitizers" = xyes], [enable_sanitizers=address,undefined])
AS_IF([test "x$enable_sanitizers" != xno], [
    gb_flag="-fsanitize=$enable_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
    gb_save_cflags=$CFLAGS
    CFLAGS="$CFLAGS $gb_flag"
    AC_MSG_CHECKING([whether $CC builds with $enable_sanitizers])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no]); AC_MSG_ERROR([--enable-sanitizers=$enable_sanitizers does not work with $CC])])
    CFLAGS=$gb_save_cflags
    GB_CFLAGS="$GB_CFLAGS $gb_flag"
    GB_LDFLAGS="$GB_LDFLAGS -fsanitize=$enable_sanitizers"
], [
    GB_CHECK_CFLAGS([GB_CFLAGS], [-fstack-protector-strong])
    GB_LDFLAGS="$GB_LDFLAGS -Wl,-z,relro -Wl,-z,now"
])
dnl What instruments a program makes calls and opens files of its own: the daemon is not caged then unless asked.
AS_IF([test "x$enable_coverage" = xyes || test "x$enable_sanitizers" != xno],
    [AC_DEFINE([GB_INSTRUMENTED], [1], [sanitizers or coverage are built in])])
AS_IF([test "x$enable_coverage" = xyes], [
    GB_CFLAGS="$GB_CFLAGS --coverage"
    GB_LDFLAGS="$GB_LDFLAGS --coverage"
])
AS_IF([test "x$enable_fuzzers" = xyes], [
    gb_save_cflags=$CFLAGS
    CFLAGS="$CFLAGS -fsanitize=fuzzer"
    AC_MSG_CHECKING([whether $CC has libFuzzer])
    AC_LINK_IFELSE([AC_LANG_SOURCE([[
        int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size);
        int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size) { return data == 0 && size != 0; }
        ]])], [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no]); AC_MSG_ERROR([--enable-fuzzers needs CC=clang and its runtime (Debian: libclang-rt-14-dev)])])
    CFLAGS=$gb_save_cflags
    GB_CFLAGS="$GB_CFLAGS -fsanitize=fuzzer-no-link"
    FUZZ_LDFLAGS="-fsanitize=fuzzer"
])
AC_SUBST([GB_CFLAGS])
AC_SUBST([GB_LDFLAGS])
AC_SUBST([FUZZ_LDFLAGS])
AM_CONDITIONAL([ENABLE_FUZZERS], [test "x$enable_fuzzers" = xyes])
AM_CONDITIONAL([ENABLE_COVERAGE], [test "x$enable_coverage" = xyes])
])
