#include "api/middleware/bounds.h"

#include "api/auth.h"

/* The token that the request counts for; 0: its address. Where tokens have no bound, any number of one says enough: a
 * request with a valid token never counts for its address. */
static uint64_t whose(const struct gb_http_request *request) {
    int64_t token = 0;

    if (!gb_http_bounds_tokens(request))
        return request->caller;
    return gb_api_bearer(request, &token, NULL) < 0 ? 0 : (uint64_t)token;
}

/* A secret has 256 random bits, so guesses do not succeed: they are slowed because each costs time and a line of a log.
 * A valid token therefore passes, from the same address too. Otherwise a client that guesses would shut out all others
 * behind its address. What is refused for another reason counts as what is not. */
static int refuse(struct gb_http_request *request, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (err->code == GB_ERR_UNAUTHENTICATED && gb_http_header(request, "Authorization") &&
        gb_http_authentication_failed(request, err) < 0)
        return -1;
    if (gb_http_bound_client(request, request->caller > 0 ? whose(request) : 0, NULL, &why) < 0)
        *err = why;
    return -1;
}

int gb_bounds_authorize(void *app, struct gb_http_request *request, struct gb_error *err) {
    if (gb_api_authorize(app, request, err) < 0)
        return refuse(request, err);
    return gb_http_bound_client(request, whose(request), NULL, err);
}

int gb_bounds_upload(struct gb_http_request *request, struct gb_place *ret, struct gb_error *err) {
    struct gb_client *client;

    *ret = (struct gb_place){.end = NULL};
    if (gb_http_upload_opens(request, &client, err) < 0)
        return -1;
    if (client)
        *ret = (struct gb_place){.arg = client, .end = gb_http_upload_ended};
    return 0;
}

void gb_bounds_upload_kept(struct gb_place *place) {
    if (place->end)
        place->end(place->arg);
}
