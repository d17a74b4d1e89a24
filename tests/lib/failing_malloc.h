/* A malloc that fails on request, for the program that it is linked into. */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#include <stdatomic.h>

/* Sanitizers bring a malloc of their own: then this has none. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GB_OWN_MALLOC

/* How many allocations succeed, on whatever thread, before one fails; negative: none fails. check itself allocates. */
extern atomic_long gb_allocations;
/* The same of the calling thread alone. */
extern __thread long gb_allocations_here;
#endif

#endif
