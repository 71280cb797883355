/* See flight.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/flight.h"
#include "runtime/log.h"

void smelt__flights_init(struct smelt__flights *flights, int keep, void (*free_result)(void *)) {
    memset(flights, 0, sizeof *flights);
    pthread_mutex_init(&flights->mutex, NULL);
    pthread_cond_init(&flights->completion, NULL);
    flights->keep = keep;
    flights->free_result = free_result;
}

static void free_flight(struct smelt__flights *flights, struct smelt__flight *flight) {
    if (flight->result)
        flights->free_result(flight->result);
    free(flight->message);
    free(flight);
}

void smelt__flights_finish(struct smelt__flights *flights) {
    while (flights->first) {
        struct smelt__flight *flight = flights->first;
        flights->first = flight->next;
        free_flight(flights, flight);
    }
    pthread_cond_destroy(&flights->completion);
    pthread_mutex_destroy(&flights->mutex);
}

static struct smelt__flight *find(const struct smelt__flights *flights, const char *key) {
    for (struct smelt__flight *flight = flights->first; flight; flight = flight->next)
        if (strcmp(flight->key, key) == 0)
            return flight;
    return NULL;
}

static struct smelt__flight *start(struct smelt__flights *flights, const char *key) {
    struct smelt__flight *flight = calloc(1, sizeof *flight);
    if (!flight) {
        smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
        return NULL;
    }
    snprintf(flight->key, sizeof flight->key, "%s", key);
    flight->users = 1;
    flight->listed = 1;
    flight->next = flights->first;
    flights->first = flight;
    return flight;
}

int smelt__flight_join(struct smelt__flights *flights, const char *key,
                       struct smelt__flight **out) {
    pthread_mutex_lock(&flights->mutex);
    struct smelt__flight *flight = find(flights, key);
    int leads = !flight;
    if (leads) {
        flight = start(flights, key);
    } else {
        flight->users++;
        while (!flight->done)
            pthread_cond_wait(&flights->completion, &flights->mutex);
    }
    pthread_mutex_unlock(&flights->mutex);
    if (!leads && flight->status)
        smelt__fail(flight->status, "%s",
                    flight->message ? flight->message : "out of memory for the message");
    *out = flight;
    return leads;
}

static void unlist(struct smelt__flights *flights, struct smelt__flight *flight) {
    struct smelt__flight **link = &flights->first;
    while (*link != flight)
        link = &(*link)->next;
    *link = flight->next;
    flight->listed = 0;
}

void smelt__flight_complete(struct smelt__flights *flights, struct smelt__flight *flight,
                            smelt_status status, void *result) {
    pthread_mutex_lock(&flights->mutex);
    flight->status = status;
    flight->result = result;
    if (status)
        flight->message = strdup(smelt_last_error());
    flight->done = 1;
    if (status || !flights->keep)
        unlist(flights, flight);
    pthread_cond_broadcast(&flights->completion);
    pthread_mutex_unlock(&flights->mutex);
}

void smelt__flight_leave(struct smelt__flights *flights, struct smelt__flight *flight) {
    pthread_mutex_lock(&flights->mutex);
    int last = --flight->users == 0 && !flight->listed;
    pthread_mutex_unlock(&flights->mutex);
    if (last)
        free_flight(flights, flight);
}
