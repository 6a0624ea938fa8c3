/** Locks for Spring Integration: {@link lockelection.spring.LockElectionRegistry}, which Spring Boot configures. */
package lockelection.spring;
