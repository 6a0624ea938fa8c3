/** Listeners that create spans of OpenTelemetry and meters of Micrometer from the events of a session. */
package lockelection.observability;
