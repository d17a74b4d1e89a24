/* The CUDA backend: every visible GPU, its memory from stream-ordered pools. */
#ifndef GB_BACKEND_CUDA_CUDA_H
#define GB_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"

/* Opens every visible GPU. args must be NULL or empty. ret_note (NULL, or GB_BACKEND_NOTE_SIZE bytes) gets one sentence
 * for the log, on success and on failure. The program itself starts without a driver: the runtime is linked statically
 * and searches for one here. Returns 0 or -1. Errors: UNSUPPORTED without a driver or a device. */
int gb_cuda_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

#endif
