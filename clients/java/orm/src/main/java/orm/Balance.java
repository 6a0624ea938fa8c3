package orm;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;

/** A row of table balance. */
@Entity
@Table(name = "balance")
public class Balance {
	@Id
	private int id;
	private int amount;

	void add(int more) {
		amount += more;
	}
}
