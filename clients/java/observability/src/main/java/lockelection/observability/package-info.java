/** Listeners that make spans of OpenTelemetry and meters of Micrometer from the events of a session. */
package lockelection.observability;
