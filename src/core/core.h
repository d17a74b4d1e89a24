/* Every use case as one function. No JSON, no HTTP, no SQL, no CUDA.
 *
 * * Functions marked [now] finish at once, take only short locks and may be called from an HTTP loop. Functions that
 * take a gb_call start work and return at once; an HTTP loop may call them too. call->done runs once, on another thread
 * or before the function has returned. By then all changes of the call are durable and visible, or none is. */
#ifndef GB_CORE_CORE_H
#define GB_CORE_CORE_H

#include "core/public/access.h"
#include "core/public/buffer.h"
#include "core/public/call.h"
#include "core/public/durable.h"
#include "core/public/lifecycle.h"
#include "core/public/observe.h"
#include "core/public/session.h"
#include "core/public/share.h"
#include "core/public/types.h"
#include "core/public/upload.h"

#endif
