/* A fuzz target: libFuzzer calls it with --enable-fuzzers, replay.c otherwise. */
#ifndef GB_FUZZ_H
#define GB_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Texts that the target takes, NULL at the end; replay.c starts from them. */
extern const char *const gb_fuzz_seeds[];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold, in every build. */
#define FUZZ_ASSERT(expr)                                                                                              \
    do {                                                                                                               \
        if (!(expr))                                                                                                   \
            abort();                                                                                                   \
    } while (0)

#endif
