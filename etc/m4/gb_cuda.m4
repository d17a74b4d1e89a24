# GB_CUDA: --with-cuda[=DIR] (yes, no, check or the toolkit's folder).
#
# Sets gb_cuda to yes or no and, with a toolkit, gb_cuda_dir, CUDA_CPPFLAGS, CUDA_LIBS (the static runtime, so that the
# binary starts where no driver is installed) and defines HAVE_CUDA.
AC_DEFUN([GB_CUDA], [
AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
        [build the CUDA backend: yes, no, check or the toolkit's folder (default: check, which looks in $CUDA_HOME and
         /usr/local/cuda)])],
    [], [with_cuda=check])
AC_ARG_VAR([CUDA_HOME], [folder of the CUDA toolkit])
gb_cuda=no
gb_cuda_why=
AS_CASE([$with_cuda],
    [no], [gb_cuda_dirs=; gb_cuda_why="switched off"],
    [yes|check], [gb_cuda_dirs="$CUDA_HOME /usr/local/cuda /usr"],
    [gb_cuda_dirs=$with_cuda])
AS_IF([test "x$with_cuda" != xno], [
    AC_MSG_CHECKING([for the CUDA runtime])
    for gb_dir in $gb_cuda_dirs; do
        for gb_lib in lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib targets/aarch64-linux/lib lib \
            lib/x86_64-linux-gnu lib/aarch64-linux-gnu; do
            AS_IF([test "$gb_cuda" = no && test -r "$gb_dir/include/cuda_runtime_api.h" &&
                   test -r "$gb_dir/$gb_lib/libcudart_static.a"], [
                gb_cuda=yes
                gb_cuda_dir=$gb_dir
                CUDA_CPPFLAGS="-isystem $gb_dir/include"
                CUDA_LIBS="$gb_dir/$gb_lib/libcudart_static.a -ldl -lrt -lpthread"
            ])
        done
    done
    AS_IF([test "$gb_cuda" = yes], [
        AC_MSG_RESULT([$gb_cuda_dir])
        gb_save_cppflags=$CPPFLAGS
        gb_save_libs=$LIBS
        CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
        LIBS="$CUDA_LIBS $LIBS"
        AC_MSG_CHECKING([whether a program links with the static CUDA runtime])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>]], [[int n; return cudaGetDeviceCount(&n) != 0;]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no]); gb_cuda=no; gb_cuda_why="the runtime in $gb_cuda_dir does not link"])
        CPPFLAGS=$gb_save_cppflags
        LIBS=$gb_save_libs
    ], [
        AC_MSG_RESULT([no])
        gb_cuda_why="no cuda_runtime_api.h with libcudart_static.a under $gb_cuda_dirs"
    ])
    AS_IF([test "$gb_cuda" = no && test "x$with_cuda" != xcheck],
        [AC_MSG_ERROR([--with-cuda=$with_cuda: $gb_cuda_why])])
])
AS_IF([test "$gb_cuda" = yes],
    [AC_DEFINE([HAVE_CUDA], [1], [the CUDA backend is built])],
    [CUDA_CPPFLAGS=; CUDA_LIBS=])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
AM_CONDITIONAL([HAVE_CUDA], [test "$gb_cuda" = yes])
])
