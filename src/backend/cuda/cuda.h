/* The CUDA backend: every visible GPU, its memory from stream-ordered pools. */
#ifndef GB_BACKEND_CUDA_CUDA_H
#define GB_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"

/* Opens every visible GPU. args must be NULL or empty. ret_note (NULL, or GB_BACKEND_NOTE_SIZE bytes) gets one sentence
 * for the log, on success and on failure alike. UNSUPPORTED when no driver, no device or a device without memory pools
 * is there. The program itself starts without a driver: the runtime is linked statically and searches for one here. */
int gb_cuda_open(const char *args, struct gb_backend **ret, char *ret_note, struct gb_error *err);

#endif
